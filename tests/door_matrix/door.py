"""One row of the matrix: a door as its clients see it, byte by byte."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Way = Literal["events", "body", "socket"]
"""How an answer comes: server-sent events or JSON lines, one JSON body, or messages of a WebSocket."""


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
        sentence: what the table says of errors that are a sentence alone, and have no kind.
        last: what the data of the event or message that completes an answer contains.
        failed: what the message contains that ends a failed answer.
        cancel: the message that cancels an answer.
        verbs: the words before the JSON of `ask` and of `cancel`, for a socket whose messages, both ways, have one.
        greeting: the message that a socket gets first; "" = none.
        body_limits: how many times the gateway's `body_limit` a request may have.
        breaks: whether the connection breaks after an error in mid-stream.
        advises: whether a refusal says in `x-should-retry` if to ask again.
        refuses_in_events: whether what a stream asks for is refused by 200 and an event.
        keyed: whether a request can say by a key that it was sent before.
    """

    name: str
    way: Way
    path: str
    ask: Callable[[str, str, str], Mapping[str, Any]]
    text: str
    kinds: tuple[str, ...]
    sentence: str = ""
    last: str = ""
    failed: tuple[str, ...] = ()
    cancel: Mapping[str, Any] = field(default_factory=dict)
    verbs: tuple[str, str] = ("", "")
    greeting: str = ""
    body_limits: int = 1
    breaks: bool = True
    advises: bool = True
    refuses_in_events: bool = False
    keyed: bool = True

    def make_question(self, flow: str, model: str, question: str, word: str | None = None) -> str:
        """What is sent to ask; with a word on a socket, the word too."""
        asked = self.ask(flow, model, question)
        if word is not None and self.way == "socket":
            asked = {**asked, "request_key": word}
        return self.verbs[0] + json.dumps(asked)

    def make_cancel(self) -> str:
        """What is sent to cancel."""
        return self.verbs[1] + json.dumps(self.cancel)

    def read_contents(self, message: str) -> list[Any]:
        """The JSON of a body, an event or a message; a message with a verb has a list of them.

        What is text is JSON that was encoded twice.
        """
        if self.verbs[0]:
            return list(json.loads(message.partition(" ")[2]))
        content = json.loads(message)
        return [json.loads(content) if isinstance(content, str) else content]


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
