"""Pieces of an answer -> events of its blocks, one block after the other.

A model may write several calls at once, but Anthropic's blocks never interleave. So pieces that do not belong to the
open call wait until its arguments are complete, or until the answer ends.
"""

from collections import deque
from typing import Final

from tg_base.telemetry import new_id
from tg_gateway.dialects.anthropic.open_block import OpenBlock, OpenText, OpenThinking, OpenToolUse
from tg_gateway.dialects.anthropic.signatures import wrap_call_signature
from tg_schema import ToolCallDelta
from tg_schema.errors import ProtocolError, TooLarge

MAX_WAITING_CHARACTERS: Final = 1024 * 1024
"""Characters that may wait for an open call to be complete."""
BLOCK_CHARACTERS: Final = 128
"""Characters counted for each waiting block, besides its text and signature; all calls of an answer fit within the
limit."""


class BlockSequence:
    """The blocks of one answer. Each method returns the events that can be sent now.

    Raises:
        TooLarge: more than `MAX_WAITING_CHARACTERS` wait.
    """

    def __init__(self) -> None:
        self._blocks: deque[OpenBlock] = deque()
        """The blocks that have not ended; the first one is open."""
        self._calls: dict[int, OpenToolUse] = {}
        self._opened = 0
        self._waiting = 0

    def add_text(self, text: str) -> bytes:
        """Text of the answer."""
        blocks = self._blocks
        # Fast path: nearly all pieces continue an open text.
        if len(blocks) == 1 and type(blocks[0]) is OpenText:
            return blocks[0].write(text)
        return self._add(OpenText, text)

    def add_thinking(self, text: str) -> bytes:
        """Add thinking. It belongs to the last block of thinking, unless that has been signed."""
        return self._add(OpenThinking, text)

    def sign(self, signature: str) -> bytes:
        """Add the signature of the last thinking or, if there is none, of thinking that is not shown."""
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, OpenThinking) and last.signature is None:
            last.signature = signature
            self._count(last, len(signature))
            return b""
        hidden = OpenThinking()
        hidden.signature = signature
        return self._begin(hidden)

    def add_call(self, delta: ToolCallDelta) -> bytes:
        """Add a piece of a call.

        Raises:
            ProtocolError: the call continues after its arguments were complete.
        """
        begun = self._calls.get(delta.index)
        call = begun or OpenToolUse(delta.id or f"toolu_{new_id()}", delta.name or "")
        data = self.sign(wrap_call_signature(call.call, delta.signature)) if delta.signature else b""
        if begun is None:
            self._calls[delta.index] = call
            data += self._begin(call)
        # Blanks may follow the arguments, whose end was sent already; the client misses nothing.
        if call.over and delta.arguments.strip():
            raise ProtocolError("the model went on with a call whose arguments were complete; ask again")
        return data if call.over or not delta.arguments else data + self._feed(call, delta.arguments)

    def end(self) -> bytes:
        """The answer has ended, complete or not."""
        data = b""
        while self._blocks:
            data += self._open_first() + self._blocks.popleft().stop()
        return data

    def _add(self, kind: type[OpenText | OpenThinking], text: str) -> bytes:
        last = self._blocks[-1] if self._blocks else None
        if type(last) is kind and last.signature is None:
            return self._feed(last, text)
        block = kind()
        data = self._begin(block)
        return data + self._feed(block, text)

    def _begin(self, block: OpenBlock) -> bytes:
        self._blocks.append(block)
        data = self._advance()
        self._count(block, BLOCK_CHARACTERS + len(block.signature or ""))
        return data

    def _feed(self, block: OpenBlock, text: str) -> bytes:
        block.note(text)
        if block.index < 0:
            self._count(block, len(text))
            block.held.append(text)
            return b""
        data = block.write(text)
        return data + self._advance() if len(self._blocks) > 1 else data

    def _count(self, block: OpenBlock, size: int) -> None:
        if block.index < 0:
            block.waiting += size
            self._waiting += size
        if self._waiting > MAX_WAITING_CHARACTERS:
            raise TooLarge("the model writes too much beside an unfinished call; ask for one call at a time")

    def _advance(self) -> bytes:
        """Close each complete block that another one follows."""
        data = self._open_first()
        while len(self._blocks) > 1 and self._blocks[0].complete:
            data += self._blocks.popleft().stop() + self._open_first()
        return data

    def _open_first(self) -> bytes:
        block = self._blocks[0]
        if block.index >= 0:
            return b""
        self._waiting -= block.waiting
        self._opened += 1
        return block.start(self._opened - 1)
