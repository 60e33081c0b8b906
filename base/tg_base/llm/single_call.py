"""LlmChunk -> the same without further calls: at most one tool call in each answer."""

import msgspec

from tg_base.llm.core import LlmChunk


class SingleCall:
    """Keeps the call that begins first in each answer. The provider's other calls are dropped, their usage is not."""

    def __init__(self) -> None:
        self._kept: dict[int, int] = {}

    def edit(self, chunk: LlmChunk) -> LlmChunk:
        """The chunk with the pieces of its answer's first call only."""
        if not chunk.tool_calls:
            return chunk
        kept = self._kept.setdefault(chunk.index, chunk.tool_calls[0].index)
        calls = tuple(call for call in chunk.tool_calls if call.index == kept)
        return msgspec.structs.replace(chunk, tool_calls=calls)
