"""Model's text -> events: pure parsers that give the same however the text is cut."""

from tg_flow.agent.parsing.events import Called, Closed, Event, Kind, Misread, Reasoned, Said
from tg_flow.agent.parsing.json_scanner import object_of
from tg_flow.agent.parsing.react_parser import HOLD, ReactParser

__all__ = [
    "HOLD",
    "Called",
    "Closed",
    "Event",
    "Kind",
    "Misread",
    "ReactParser",
    "Reasoned",
    "Said",
    "object_of",
]
