"""Model's text -> loop: the events of one turn, in order."""

from typing import Literal, NamedTuple

Kind = Literal["thought", "answer"]


class TextDelta(NamedTuple):
    """A piece of text. Adjacent pieces of one kind belong to one message, until `MessageEnd`."""

    kind: Kind
    text: str


class ReasoningDelta(NamedTuple):
    """A piece of reasoning that the provider sends separately from the text."""

    text: str


class MessageEnd(NamedTuple):
    """The open message is complete."""


class ParsedCall(NamedTuple):
    """A complete call; `arguments` is the JSON text of an object, `signature` the provider's proof of the call."""

    tool: str
    arguments: str = "{}"
    id: str | None = None
    signature: str | None = None


class InvalidCall(NamedTuple):
    """An invalid call.

    Attributes:
        fault: what is wrong, as a sentence for the model.
        tool: the tool's name, if it could be read.
        arguments: the text that stands in place of the arguments.
        id: the call's id, if the provider gave one.
        signature: the provider's proof of the call, if it gave one.
    """

    fault: str
    tool: str | None = None
    arguments: str = ""
    id: str | None = None
    signature: str | None = None


Event = TextDelta | ReasoningDelta | MessageEnd | ParsedCall | InvalidCall
