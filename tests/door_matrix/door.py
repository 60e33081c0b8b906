"""One row of the matrix: a door as its clients see it, byte by byte."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Way = Literal["events", "body", "socket"]
"""How an answer comes: server-sent events, one JSON body, or messages of a WebSocket."""


@dataclass(frozen=True)
class Door:
    """A door, and how to read what it says. A place is a dotted path into JSON, such as `error.type`.

    Attributes:
        name: its row in the table.
        way: how an answer comes.
        path: where it is; `{flow}` is the flow's name.
        ask: what is sent for (flow, model, question).
        text: the place of text in an event, body or message.
        kinds: places at which an error's kind may stand.
        last: what the data of the event or message that completes an answer contains.
        failed: what the message contains that ends a failed answer.
        cancel: the message that cancels an answer.
        breaks: whether the connection breaks after an error in mid-stream.
        advises: whether a refusal says in `x-should-retry` if to ask again.
        refuses_in_events: whether what a stream asks for is refused by 200 and an event.
    """

    name: str
    way: Way
    path: str
    ask: Callable[[str, str, str], Mapping[str, Any]]
    text: str
    kinds: tuple[str, ...]
    last: str = ""
    failed: tuple[str, ...] = ()
    cancel: Mapping[str, Any] = field(default_factory=dict)
    breaks: bool = True
    advises: bool = True
    refuses_in_events: bool = False


def find(place: str, data: Any) -> Any:
    """What stands at a place; None where there is no such place."""
    for step in place.split("."):
        if isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        elif isinstance(data, dict):
            data = data.get(step)
        else:
            return None
    return data
