"""Model's text -> loop: what a model says in one turn, in the order in which it says it."""

from typing import Literal, NamedTuple

Kind = Literal["thought", "answer"]


class TextDelta(NamedTuple):
    """A piece of prose; neighbours of the same kind are one message until `MessageEnd`."""

    kind: Kind
    text: str


class ReasoningDelta(NamedTuple):
    """A piece of thinking that the provider tells apart from the text; it is not shown to the model again."""

    text: str


class MessageEnd(NamedTuple):
    """The message that was being said is complete."""


class ParsedCall(NamedTuple):
    """A complete call; `arguments` is the JSON text of an object."""

    tool: str
    arguments: str = "{}"
    id: str | None = None


class InvalidCall(NamedTuple):
    """Something that was meant as a call and is none.

    Attributes:
        fault: what is wrong, as a sentence for the model.
        tool: whose call it was, where that much could be read.
        arguments: what stood in the place of the arguments.
        id: the call's id, where the provider gave one.
    """

    fault: str
    tool: str | None = None
    arguments: str = ""
    id: str | None = None


Event = TextDelta | ReasoningDelta | MessageEnd | ParsedCall | InvalidCall
