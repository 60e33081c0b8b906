"""Pieces of a tool call -> a function call item."""

from collections.abc import Iterator

from typing_extensions import override

from tg_gateway.dialects import ArgumentsEnd
from tg_gateway.dialects.responses.events import ArgumentsDelta, ArgumentsDone, Event
from tg_gateway.dialects.responses.item_draft import ItemDraft, ItemPlace
from tg_gateway.dialects.responses.response_object import FunctionCall, ItemStatus
from tg_schema import ToolCallDelta

NO_ARGUMENTS = "{}"
"""The arguments of a call to which the model wrote none."""


class CallDraft(ItemDraft):
    """One call.

    Pieces of parallel calls may alternate. So it ends once its arguments are a whole JSON object and another item has
    begun, or with the answer.
    """

    def __init__(self, place: ItemPlace, first: ToolCallDelta) -> None:
        super().__init__(place.make_id("fc"), place)
        self.call_id = first.id or place.make_id("call")
        self._name = first.name or ""
        self._pieces: list[str] = []
        self._emitted = 0
        self._end = ArgumentsEnd()
        self.add(first)

    def add(self, piece: ToolCallDelta) -> None:
        """A further piece."""
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
    def emit_rest(self) -> Iterator[Event]:
        if rest := "".join(self._pieces[self._emitted :]):
            self._emitted = len(self._pieces)
            yield ArgumentsDelta(self.id, self.index, rest)

    @override
    def finish(self, status: ItemStatus) -> Iterator[Event]:
        if not self._pieces and status == "completed":
            # A client parses the arguments; "" is no JSON.
            self._pieces.append(NO_ARGUMENTS)
        yield from super().finish(status)

    @override
    def end_parts(self) -> Iterator[Event]:
        yield ArgumentsDone(self.id, self.index, self._name, "".join(self._pieces))
