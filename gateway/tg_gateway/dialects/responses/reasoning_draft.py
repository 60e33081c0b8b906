"""Pieces of the model's thinking, and its signature -> a reasoning item."""

from collections.abc import Iterator

from typing_extensions import override

from tg_gateway.dialects.responses.encrypted_content import SealedReasoning, seal
from tg_gateway.dialects.responses.events import (
    Event,
    PartAdded,
    PartDone,
    ReasoningTextDelta,
    ReasoningTextDone,
    SummaryPartAdded,
    SummaryPartDone,
    SummaryTextDelta,
    SummaryTextDone,
)
from tg_gateway.dialects.responses.item_drafts import ItemDraft, ItemPlace
from tg_gateway.dialects.responses.response_object import (
    ItemStatus,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)


class ReasoningDraft(ItemDraft):
    """One piece of thinking; its signature ends it.

    Args:
        place: where the item stands.
        summary: whether the client asked for a summary; then the thinking is sent as one.
        encrypted: whether the client takes the signature.
    """

    def __init__(self, place: ItemPlace, *, summary: bool, encrypted: bool) -> None:
        super().__init__(place, "rs")
        self._summary = summary
        self._encrypted = encrypted
        self._signature: str | None = None
        self._call: str | None = None

    def add(self, text: str) -> None:
        """A piece of the thinking."""
        self._pieces.append(text)

    def sign(self, signature: str, call: str | None = None) -> None:
        """End it with the provider's signature; with `call`, that of a call."""
        self._signature, self._call = signature, call
        self.sealed = True

    @override
    def make_item(self, status: ItemStatus) -> ReasoningItem:
        text = "".join(self._pieces) if self._emitted else ""
        summary = (SummaryText(text),) if text and self._summary else ()
        content = (ReasoningText(text),) if text and not self._summary else ()
        sealed = None
        if self._encrypted and self._signature is not None and status != "in_progress":
            sealed = seal(SealedReasoning(self._signature, text, self._call))
        return ReasoningItem(self.id, status, summary, content, sealed)

    @override
    def begin_part(self) -> Iterator[Event]:
        if self._summary:
            yield SummaryPartAdded(self.id, self.index, SummaryText())
        else:
            yield PartAdded(self.id, self.index, ReasoningText())

    @override
    def make_delta(self, text: str) -> Event:
        return (SummaryTextDelta if self._summary else ReasoningTextDelta)(self.id, self.index, text)

    @override
    def end_parts(self) -> Iterator[Event]:
        text = "".join(self._pieces)
        if self._emitted and self._summary:
            yield SummaryTextDone(self.id, self.index, text)
            yield SummaryPartDone(self.id, self.index, SummaryText(text))
        elif self._emitted:
            yield ReasoningTextDone(self.id, self.index, text)
            yield PartDone(self.id, self.index, ReasoningText(text))
