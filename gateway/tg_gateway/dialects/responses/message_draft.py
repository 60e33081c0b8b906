"""Pieces of the answer's text -> a message item."""

from collections.abc import Iterator, Sequence

from typing_extensions import override

from tg_gateway.dialects.responses.events import Event, PartAdded, PartDone, TextDelta, TextDone
from tg_gateway.dialects.responses.item_draft import ItemDraft, ItemPlace
from tg_gateway.dialects.responses.response_object import (
    ItemStatus,
    Logprob,
    OutputMessage,
    OutputText,
    TopLogprob,
)
from tg_schema import Token


class MessageDraft(ItemDraft):
    """A message of one text part."""

    def __init__(self, place: ItemPlace) -> None:
        super().__init__(place.make_id("msg"), place)
        self._texts: list[str] = []
        self._logprobs: list[Logprob] = []
        self._emitted = self._emitted_logprobs = 0

    def add(self, text: str, tokens: Sequence[Token]) -> None:
        """A piece of the text, with the log-probabilities of its tokens if the client asked for them."""
        if text:
            self._texts.append(text)
        if tokens:
            self._logprobs += make_logprobs(tokens)

    def make_delta(self, text: str, logprobs: tuple[Logprob, ...] = ()) -> TextDelta:
        """The event of a piece."""
        return TextDelta(item_id=self.id, output_index=self.index, logprobs=logprobs, delta=text)

    def add_emitted(self, text: str) -> None:
        """Note a piece that the caller sends, after all earlier pieces were sent."""
        self._texts.append(text)
        self._emitted += 1

    @override
    def make_item(self, status: ItemStatus) -> OutputMessage:
        return OutputMessage(self.id, status, (self._make_part(),) if self._emitted else ())

    @override
    def emit_rest(self) -> Iterator[Event]:
        if len(self._texts) == self._emitted:
            return
        if not self._emitted:
            yield PartAdded(self.id, self.index, OutputText())
        rest = self._texts[self._emitted :]
        logprobs = tuple(self._logprobs[self._emitted_logprobs :]) if self._logprobs else ()
        self._emitted, self._emitted_logprobs = len(self._texts), len(self._logprobs)
        yield self.make_delta("".join(rest), logprobs)

    @override
    def end_parts(self) -> Iterator[Event]:
        part = self._make_part()
        yield TextDone(self.id, self.index, part.text, part.logprobs)
        yield PartDone(self.id, self.index, part)

    def _make_part(self) -> OutputText:
        return OutputText("".join(self._texts), logprobs=tuple(self._logprobs))


def make_logprobs(tokens: Sequence[Token]) -> list[Logprob]:
    """The tokens of the text whose log-probability is known."""
    return [
        Logprob(token.text, token.logprob, tuple(token.raw_bytes or token.text.encode()), _make_alternatives(token))
        for token in tokens
        if token.logprob is not None and not token.special
    ]


def _make_alternatives(token: Token) -> tuple[TopLogprob, ...]:
    """The alternatives of a token whose text is known."""
    known = zip(token.top_texts, token.top, strict=False)
    return tuple(TopLogprob(text, logprob, tuple(text.encode())) for text, (_, logprob) in known)
