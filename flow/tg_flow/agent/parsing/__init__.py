"""Model's text -> events: parsers without I/O, whose events do not depend on how the text is split into pieces."""

from tg_flow.agent.parsing.events import Event, InvalidCall, Kind, MessageEnd, ParsedCall, ReasoningDelta, TextDelta
from tg_flow.agent.parsing.react_call import object_of
from tg_flow.agent.parsing.react_parser import ReactParser

__all__ = [
    "Event",
    "InvalidCall",
    "Kind",
    "MessageEnd",
    "ParsedCall",
    "ReactParser",
    "ReasoningDelta",
    "TextDelta",
    "object_of",
]
