"""Pieces of an answer -> its output items: their events, and their final form."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from tg_gateway.dialects.chat import TokenLogprob, TopLogprob
from tg_gateway.dialects.responses.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Event,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    TextDelta,
    TextDone,
)
from tg_gateway.dialects.responses.response_object import (
    FunctionCall,
    ItemStatus,
    OutputItem,
    OutputMessage,
    OutputText,
)
from tg_schema import Token, ToolCallDelta
from tg_schema.object_end import ObjectEnd


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """The position of an item in its response.

    Attributes:
        response: the response's id without its prefix.
        index: its place in the output.
    """

    response: str
    index: int

    def make_id(self, prefix: str) -> str:
        """The item's id."""
        return f"{prefix}_{self.response}{self.index:04x}"


class ItemDraft(ABC):
    """One item while the model writes it. Everything added before `emit` is sent as one delta.

    Args:
        place: the position of the item.
        prefix: the prefix of its id.

    Attributes:
        id: the same in all events and in the final response.
    """

    sealed = False
    """Whether no further piece can belong to the item."""
    status: ItemStatus = "in_progress"
    """The item's status in the last event."""

    def __init__(self, place: ItemPlace, prefix: str) -> None:
        self.id = place.make_id(prefix)
        self.index = place.index
        self.begun = False
        self._pieces: list[str] = []
        self._emitted = 0

    @property
    def may_end(self) -> bool:
        """Whether the item is whole as soon as another item has begun."""
        return True

    @abstractmethod
    def make_item(self, status: ItemStatus) -> OutputItem:
        """The current item; empty while it is in progress and nothing of it was sent."""

    def begin_part(self) -> Iterator[Event]:
        """The event before the item's first piece."""
        yield from ()

    @abstractmethod
    def make_delta(self, text: str) -> Event:
        """The event of a piece."""

    @abstractmethod
    def end_parts(self) -> Iterator[Event]:
        """The events that end its parts."""

    def emit(self) -> Iterator[Event]:
        """The events of all that was added since the last time."""
        if not self.begun:
            self.begun = True
            yield ItemAdded(self.index, self.make_item("in_progress"))
        if rest := self._pieces[self._emitted :]:
            if not self._emitted:
                yield from self.begin_part()
            self._emitted = len(self._pieces)
            yield self.make_delta("".join(rest))

    def finish(self, status: ItemStatus) -> Iterator[Event]:
        """The events for what was not sent yet, and those that end the item."""
        yield from self.emit()
        self.status = status
        yield from self.end_parts()
        yield ItemDone(self.index, self.make_item(status))


class MessageDraft(ItemDraft):
    """A message of one text part."""

    def __init__(self, place: ItemPlace) -> None:
        super().__init__(place, "msg")
        self._logprobs: list[TokenLogprob] = []
        self._emitted_logprobs = 0

    def add(self, text: str, tokens: Sequence[Token]) -> None:
        """A piece of the text, with the log-probabilities of its tokens if the client asked for them."""
        self._pieces.append(text)
        self._logprobs += make_logprobs(tokens)

    def add_emitted(self, text: str) -> None:
        """Note a piece that the caller sends, after all earlier pieces were sent."""
        self._pieces.append(text)
        self._emitted += 1

    @override
    def make_item(self, status: ItemStatus) -> OutputMessage:
        return OutputMessage(self.id, status, (self._make_part(),) if self._emitted else ())

    @override
    def begin_part(self) -> Iterator[Event]:
        yield PartAdded(self.id, self.index, OutputText())

    @override
    def make_delta(self, text: str) -> TextDelta:
        logprobs = tuple(self._logprobs[self._emitted_logprobs :])
        self._emitted_logprobs = len(self._logprobs)
        return TextDelta(item_id=self.id, output_index=self.index, logprobs=logprobs, delta=text)

    @override
    def end_parts(self) -> Iterator[Event]:
        part = self._make_part()
        yield TextDone(self.id, self.index, part.text, part.logprobs)
        yield PartDone(self.id, self.index, part)

    def _make_part(self) -> OutputText:
        return OutputText("".join(self._pieces), logprobs=tuple(self._logprobs))


def make_logprobs(tokens: Sequence[Token]) -> list[TokenLogprob]:
    """The tokens of the text whose log-probability is known."""
    return [
        TokenLogprob(
            token.text, token.logprob, tuple(token.raw_bytes or token.text.encode()), _make_alternatives(token)
        )
        for token in tokens
        if token.logprob is not None and not token.special
    ]


def _make_alternatives(token: Token) -> tuple[TopLogprob, ...]:
    """The alternatives of a token whose text is known."""
    known = zip(token.top_texts, token.top, strict=False)
    return tuple(TopLogprob(text, logprob, tuple(text.encode())) for text, (_, logprob) in known)


NO_ARGUMENTS = "{}"
"""The arguments of a call to which the model wrote none."""


class CallDraft(ItemDraft):
    """One call.

    Pieces of parallel calls may alternate. So it ends once its arguments are a whole JSON object and another item has
    begun, or with the answer.
    """

    def __init__(self, place: ItemPlace, first: ToolCallDelta) -> None:
        super().__init__(place, "fc")
        self.call_id = first.id or place.make_id("call")
        self._name = ""
        self._end = ObjectEnd()
        self.add(first)

    def add(self, piece: ToolCallDelta) -> None:
        """Add a further piece of the call."""
        self._name = self._name or piece.name or ""
        if piece.arguments:
            self._pieces.append(piece.arguments)
            self._end.feed(piece.arguments)

    @property
    @override
    def may_end(self) -> bool:
        return self._end.reached

    @override
    def make_item(self, status: ItemStatus) -> FunctionCall:
        arguments = "".join(self._pieces[: self._emitted])
        return FunctionCall(self.id, status, self.call_id, self._name, arguments)

    @override
    def make_delta(self, text: str) -> Event:
        return ArgumentsDelta(self.id, self.index, text)

    @override
    def finish(self, status: ItemStatus) -> Iterator[Event]:
        if not self._pieces and status == "completed":
            # A client parses the arguments; "" is no JSON.
            self._pieces.append(NO_ARGUMENTS)
        yield from super().finish(status)

    @override
    def end_parts(self) -> Iterator[Event]:
        yield ArgumentsDone(self.id, self.index, self._name, "".join(self._pieces))
