"""One content block of a stream while it is written: its first event, its pieces, and its last events."""

from abc import ABC, abstractmethod
from typing import ClassVar

from typing_extensions import override

from tg_gateway.dialects.anthropic.wire import (
    AnswerBlock,
    BlockStart,
    BlockStop,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    encode_event,
    end_delta,
    open_delta,
)
from tg_schema.object_end import ObjectEnd
from tg_schema.pieces import MAX_EVENT_BYTES, cut_text


class OpenBlock(ABC):
    """A block that the model has begun; for the client it begins with `start`.

    Attributes:
        index: its number in the answer; -1 before `start`.
        signature: the signature of its thinking, once it is known; it takes no more pieces then.
        held: pieces that wait for `start`.
        waiting: the characters that are counted for it until then.
    """

    kind: ClassVar[bytes]
    field: ClassVar[bytes]

    def __init__(self) -> None:
        self.index = -1
        self._opened = b""
        self.signature: str | None = None
        self.held: list[str] = []
        self.waiting = 0

    @property
    def complete(self) -> bool:
        """Whether it can end as soon as another begins."""
        return True

    @abstractmethod
    def describe(self) -> AnswerBlock:
        """The block before its first piece."""

    def note(self, text: str) -> None:  # noqa: B027 - most blocks need nothing of it
        """A piece has come from the model."""

    def start(self, index: int) -> bytes:
        """Its first event, and the pieces that have waited."""
        self.index = index
        self._opened = open_delta(index, self.kind, self.field)
        # In pieces, since the waiting text may exceed what a client reads as one line.
        held = cut_text("".join(self.held), MAX_EVENT_BYTES)
        self.held.clear()
        return b"".join((encode_event(BlockStart(index, self.describe())), *map(self.write, held)))

    def write(self, text: str) -> bytes:
        """The event of a piece."""
        return end_delta(self._opened, text)

    def stop(self) -> bytes:
        """Its last events."""
        data = encode_event(BlockStop(self.index))
        # The signature is the last piece of a block, as in Anthropic's own streams.
        if self.signature:
            data = end_delta(open_delta(self.index, b"signature_delta", b"signature"), self.signature) + data
        return data


class OpenText(OpenBlock):
    """Text of the answer."""

    kind, field = b"text_delta", b"text"

    @override
    def describe(self) -> AnswerBlock:
        return TextBlock()


class OpenThinking(OpenBlock):
    """Thinking; its signature is sent at its end."""

    kind, field = b"thinking_delta", b"thinking"

    @override
    def describe(self) -> AnswerBlock:
        return ThinkingBlock()


class OpenToolUse(OpenBlock):
    """A call.

    Args:
        call: its id.
        name: the name of the tool.

    Attributes:
        over: whether its end was sent to the client.
    """

    kind, field = b"input_json_delta", b"partial_json"

    def __init__(self, call: str, name: str) -> None:
        super().__init__()
        self.call = call
        self.over = False
        self._name = name
        self._end = ObjectEnd()

    @property
    @override
    def complete(self) -> bool:
        return self._end.reached

    @override
    def describe(self) -> AnswerBlock:
        return ToolUseBlock(self.call, self._name)

    @override
    def note(self, text: str) -> None:
        self._end.feed(text)

    @override
    def stop(self) -> bytes:
        self.over = True
        return super().stop()
