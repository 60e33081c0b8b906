"""Records of one answer -> its output items, one after the other, and their events."""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
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
from tg_gateway.dialects.responses.item_drafts import CallDraft, ItemDraft, ItemPlace, MessageDraft
from tg_gateway.dialects.responses.response_object import (
    ItemStatus,
    OutputItem,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)
from tg_schema import TextCompletionResponse, ToolCallDelta
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import ProtocolError, TooLarge

Draft = TypeVar("Draft", bound=ItemDraft)
ITEM_BYTES: Final = 200
"""Bytes counted for each item besides its content: roughly the size of its ids and names in the last event."""
REFUSALS: Final = (TooLarge, ProtocolError)
"""What `OutputDraft.add` raises."""


class ReasoningDraft(ItemDraft):
    """One piece of thinking; its signature ends it.

    Args:
        place: the position of the item.
        summary: whether the client requested a summary; then the thinking is sent as one.
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
        """End the thinking with the provider's signature; with `call`, it is the signature of that call."""
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


class OutputForm(msgspec.Struct, frozen=True):
    """How the items of a response are sent.

    Attributes:
        summary: whether thinking is sent as a summary.
        encrypted: whether signatures are sent.
        logprobs: whether log-probabilities are sent.
    """

    summary: bool = False
    encrypted: bool = False
    logprobs: bool = False


class OutputDraft:
    """All items of an answer while the model writes them.

    Only one item is sent at a time. Pieces of a later item wait until the items before it are whole.

    Args:
        response: the response's id without its prefix.
        form: how the items are sent.
    """

    def __init__(self, response: str, form: OutputForm) -> None:
        self._response = response
        self._form = form
        self._items: list[ItemDraft] = []
        self._calls: dict[int, CallDraft] = {}
        self._telling = 0
        self._size = 0

    def add(self, record: TextCompletionResponse) -> Iterator[Event]:
        """The events of one more record.

        Raises:
            TooLarge: the answer exceeds the size that is kept for its last event.
            ProtocolError: pieces of one call came before and after its end.
        """
        size = len(record.response or "") + len(record.reasoning or "") + len(record.signature or "")
        self._grow(size + sum(len(piece.arguments) for piece in record.tool_calls))
        if record.reasoning or record.signature is not None:
            self._add_reasoning(record.reasoning, record.signature)
        if record.response:
            self._open_message().add(record.response, record.tokens if self._form.logprobs else ())
        for piece in record.tool_calls:
            self._add_call(piece)
        yield from self._emit()

    @property
    def open_message(self) -> MessageDraft | None:
        """The message that is being sent now; the next text belongs to it. None = there is no such message."""
        last = self._items[-1] if self._items else None
        return last if isinstance(last, MessageDraft) and last.begun and last.status == "in_progress" else None

    def add_emitted(self, message: MessageDraft, text: str) -> None:
        """Add more text of the `open_message`; the caller sends it. Raises TooLarge as `add`."""
        self._grow(len(text))
        message.add_emitted(text)

    def finish(self, last: ItemStatus) -> Iterator[Event]:
        """The events that end all items; the last one ends with this status."""
        for item in self._items[self._telling :]:
            yield from item.finish(last if item is self._items[-1] else "completed")
        self._telling = len(self._items)

    def make_items(self) -> tuple[OutputItem, ...]:
        """The items as far as they were sent; an item that has not ended is incomplete."""
        begun = (item for item in self._items if item.begun)
        return tuple(item.make_item("incomplete" if item.status == "in_progress" else item.status) for item in begun)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > MAX_ANSWER_BYTES:
            raise TooLarge(
                f"the answer is larger than {MAX_ANSWER_BYTES} bytes; ask for less, or set max_output_tokens"
            )

    def _emit(self) -> Iterator[Event]:
        while self._telling < len(self._items):
            item = self._items[self._telling]
            yield from item.emit()
            if not item.sealed and not (item.may_end and self._telling + 1 < len(self._items)):
                return
            yield from item.finish("completed")
            self._telling += 1

    def _add_reasoning(self, text: str | None, signature: str | None) -> None:
        last = self._items[-1] if self._items else None
        if not text and not self._form.encrypted and not isinstance(last, ReasoningDraft):
            return
        item = last if isinstance(last, ReasoningDraft) and not last.sealed else self._open_reasoning()
        if text:
            item.add(text)
        if signature is not None:
            item.sign(signature)

    def _add_call(self, piece: ToolCallDelta) -> None:
        call = self._calls.get(piece.index)
        if call is not None and call.status == "completed" and piece.arguments.strip():
            raise ProtocolError("the model went on with a tool call after it was complete")
        if call is None:
            # A call without the provider's id gets one from its place in the output, so its signature follows the call.
            if piece.signature is not None and piece.id and self._form.encrypted:
                self._open_reasoning().sign(piece.signature, piece.id)
            call = self._calls[piece.index] = self._append(CallDraft(self._next_place(), piece))
            if piece.signature is None or piece.id or not self._form.encrypted:
                return
        elif call.status == "in_progress":
            call.add(piece)
        if piece.signature is not None and self._form.encrypted:
            self._open_reasoning().sign(piece.signature, call.call_id)

    def _open_message(self) -> MessageDraft:
        last = self._items[-1] if self._items else None
        return last if isinstance(last, MessageDraft) else self._append(MessageDraft(self._next_place()))

    def _open_reasoning(self) -> ReasoningDraft:
        form = self._form
        return self._append(ReasoningDraft(self._next_place(), summary=form.summary, encrypted=form.encrypted))

    def _append(self, item: Draft) -> Draft:
        self._items.append(item)
        return item

    def _next_place(self) -> ItemPlace:
        self._grow(ITEM_BYTES)
        return ItemPlace(self._response, len(self._items))
