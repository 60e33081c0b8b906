"""The parts of every dialect: the interfaces and values that docs/adding-a-dialect.md describes."""

from tg_gateway.dialects.abridged_body import abridge_body
from tg_gateway.dialects.answers import MAX_KEPT_BYTES, Answer, Keep, KeptAnswers
from tg_gateway.dialects.arguments_end import ArgumentsEnd
from tg_gateway.dialects.call import Ask, Batch, Call, FailedRequest
from tg_gateway.dialects.catalogue import Catalogue, FoundModel
from tg_gateway.dialects.conversation import Conversation, Name, Socket
from tg_gateway.dialects.dialect import Dialect, Mount
from tg_gateway.dialects.field_names import FieldNames, InvalidParameter
from tg_gateway.dialects.framing import END_OF_EVENT, json_line, server_sent_event, text_frame
from tg_gateway.dialects.ignored_fields import show_ignored
from tg_gateway.dialects.retry_after import format_retry_after
from tg_gateway.dialects.text_alone import is_text_alone
from tg_gateway.dialects.writer import WholeWriter, Writer

__all__ = [
    "END_OF_EVENT", "MAX_KEPT_BYTES", "Answer", "ArgumentsEnd", "Ask", "Batch", "Call", "Catalogue", "Conversation",
    "Dialect", "FailedRequest", "FieldNames", "FoundModel", "InvalidParameter", "Keep", "KeptAnswers", "Mount", "Name",
    "Socket", "WholeWriter", "Writer", "abridge_body", "format_retry_after", "is_text_alone", "json_line",
    "server_sent_event", "show_ignored", "text_frame",
]  # fmt: skip
