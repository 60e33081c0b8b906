"""Pieces of tool calls -> whole calls: Ollama's clients know no pieces, and arguments are an object."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tg_gateway.dialects import ArgumentsEnd
from tg_schema import ToolCallDelta, decode
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import BadRequest, ProtocolError, TooLarge


class AnsweredFunction(msgspec.Struct, frozen=True):
    """What the model calls; `index` counts the calls of the answer."""

    index: int
    name: str
    arguments: dict[str, Any]


class AnsweredCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, with its id if the provider has one."""

    function: AnsweredFunction
    id: str | None = None


class _OpenCall:
    """A call whose pieces are still coming."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self.end = ArgumentsEnd()
        self._pieces: list[str] = []

    def add(self, delta: ToolCallDelta) -> None:
        self.id = self.id or delta.id
        self.name = self.name or delta.name or ""
        self._pieces.append(delta.arguments)
        self.end.feed(delta.arguments)

    def read_arguments(self) -> dict[str, Any]:
        text = "".join(self._pieces).strip()
        try:
            return decode(dict[str, Any], text) if text else {}
        except BadRequest:
            sentence = f"the model called {self.name[:64]!r} with arguments that are no JSON object; ask again"
            raise ProtocolError(sentence) from None


class ToolCalls:
    """Gathers the calls of one answer.

    Returns each call once, in order, as soon as it and those before it are whole.
    """

    def __init__(self) -> None:
        self._open: dict[int, _OpenCall] = {}
        self._taken = 0
        self._size = 0

    def add(self, deltas: Iterable[ToolCallDelta]) -> tuple[AnsweredCall, ...]:
        """The calls that are whole now.

        Raises:
            ProtocolError: the arguments of one are no object.
            TooLarge: all of them are larger than an answer may be.
        """
        for delta in deltas:
            self._size += len(delta.arguments)
            if self._size > MAX_ANSWER_BYTES:
                raise TooLarge("the model's tool calls are larger than an answer may be; ask for less")
            self._open.setdefault(delta.index, _OpenCall()).add(delta)
        return self._take_whole(all_of_them=False)

    def end(self) -> tuple[AnsweredCall, ...]:
        """The rest, once the answer has ended.

        Raises:
            ProtocolError: as `add`.
        """
        return self._take_whole(all_of_them=True)

    def _take_whole(self, *, all_of_them: bool) -> tuple[AnsweredCall, ...]:
        taken = []
        for call in list(self._open.values())[self._taken :]:
            if not (all_of_them or call.end.reached):
                break
            taken.append(AnsweredCall(AnsweredFunction(self._taken, call.name, call.read_arguments()), call.id))
            self._taken += 1
        return tuple(taken)
