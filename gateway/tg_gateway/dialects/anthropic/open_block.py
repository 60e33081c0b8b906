"""One content block of a stream while it is written: its first event, its pieces, and its last events."""

from typing import ClassVar

from typing_extensions import override

from tg_gateway.dialects.anthropic.wire import (
    AnswerBlock,
    BlockDelta,
    BlockStart,
    BlockStop,
    InputJsonDelta,
    SignatureDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    encode_event,
)
from tg_schema.object_end import ObjectEnd
from tg_schema.pieces import MAX_EVENT_BYTES, cut_text


class OpenBlock:
    """A block that the model has begun; for the client it begins with `start`.

    Attributes:
        delta: the type of the part of an event that holds a piece.
        empty: the block before its first piece.
        index: its number in the answer; -1 before `start`.
        signature: the signature of its thinking, once it is known; from then on the block gets no more pieces.
        held: pieces that wait for `start`.
        waiting: the characters that are counted for it until then.
        over: whether its end was sent to the client.
    """

    delta: ClassVar[type[TextDelta | ThinkingDelta | InputJsonDelta]]
    empty: AnswerBlock

    def __init__(self) -> None:
        self.index = -1
        self.signature: str | None = None
        self.held: list[str] = []
        self.waiting = 0
        self.over = False

    @property
    def complete(self) -> bool:
        """Whether it can end as soon as another begins."""
        return True

    def note(self, text: str) -> None:
        """A piece has arrived from the model."""

    def start(self, index: int) -> bytes:
        """Its first event, and the pieces that have waited."""
        self.index = index
        # Send it in pieces, because the waiting text may be longer than a line that the client reads.
        held = cut_text("".join(self.held), MAX_EVENT_BYTES)
        self.held.clear()
        return b"".join((encode_event(BlockStart(index, self.empty)), *map(self.write, held)))

    def write(self, text: str) -> bytes:
        """The event of a piece."""
        return encode_event(BlockDelta(self.index, self.delta(text)))

    def stop(self) -> bytes:
        """Its last events."""
        self.over = True
        # The signature is the last piece of a block, as in Anthropic's own streams.
        signed = encode_event(BlockDelta(self.index, SignatureDelta(self.signature))) if self.signature else b""
        return signed + encode_event(BlockStop(self.index))


class OpenText(OpenBlock):
    """Text of the answer."""

    delta, empty = TextDelta, TextBlock()


class OpenThinking(OpenBlock):
    """Thinking; its signature is sent at its end."""

    delta, empty = ThinkingDelta, ThinkingBlock()


class OpenToolUse(OpenBlock):
    """A call.

    Args:
        call: its id.
        name: the name of the tool.
    """

    delta = InputJsonDelta

    def __init__(self, call: str, name: str) -> None:
        super().__init__()
        self.call = call
        self.empty = ToolUseBlock(call, name)
        self._end = ObjectEnd()

    @property
    @override
    def complete(self) -> bool:
        return self._end.reached

    @override
    def note(self, text: str) -> None:
        self._end.feed(text)
