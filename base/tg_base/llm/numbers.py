"""Provider's numbers -> ours: a count that cannot be one is unknown, and an index that cannot be one is an error."""

import msgspec
import structlog

from tg_base.llm.core import LlmChunk
from tg_schema.conversation import MAX_CALL_INDEX
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import ProtocolError

log = structlog.get_logger()

_COUNTS = ("in_token", "out_token", "cached_token", "reasoning_token")


def check_numbers(chunk: LlmChunk) -> LlmChunk:
    """The chunk with counts from 0 to `MAX_COUNT`; any other count becomes None (unknown), which the log says.

    An answer is not lost for a wrong count: its text has been read, and paid.

    Raises:
        ProtocolError: a tool call's index is below 0 or above `MAX_CALL_INDEX`, or a token's id is no 64-bit number.
    """
    # What nearly all chunks are: text, and no number.
    if (
        chunk.in_token is None
        and chunk.out_token is None
        and chunk.cached_token is None
        and chunk.reasoning_token is None
        and not chunk.tool_calls
        and not chunk.tokens
    ):
        return chunk
    if any(not 0 <= call.index <= MAX_CALL_INDEX for call in chunk.tool_calls):
        raise ProtocolError(f"the provider numbers a tool call outside of 0 to {MAX_CALL_INDEX}")
    if any(not -1 <= number < 2**63 for token in chunk.tokens for number in (token.id, *(top[0] for top in token.top))):
        raise ProtocolError("the provider sent a token whose id is no 64-bit number")
    wrong = [name for name in _COUNTS if not 0 <= (getattr(chunk, name) or 0) <= MAX_COUNT]
    if not wrong:
        return chunk
    log.warning("provider.wrong_count", counts=wrong)
    return msgspec.structs.replace(chunk, **dict.fromkeys(wrong))
