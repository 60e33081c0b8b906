"""What every protocol of a door is made of; docs/adding-a-dialect.md uses nothing else."""

from tg_gateway.dialects.call import Answer, Ask, Call
from tg_gateway.dialects.catalogue import DEFAULT_FLOW, Catalogue, FoundModel
from tg_gateway.dialects.conversation import Conversation, Name, Socket
from tg_gateway.dialects.dialect import Dialect, Mount
from tg_gateway.dialects.framing import KEEP_ALIVE, json_line, server_sent_event, text_frame
from tg_gateway.dialects.writer import WholeWriter, Writer

__all__ = [
    "DEFAULT_FLOW",
    "KEEP_ALIVE",
    "Answer",
    "Ask",
    "Call",
    "Catalogue",
    "Conversation",
    "Dialect",
    "FoundModel",
    "Mount",
    "Name",
    "Socket",
    "WholeWriter",
    "Writer",
    "json_line",
    "server_sent_event",
    "text_frame",
]
