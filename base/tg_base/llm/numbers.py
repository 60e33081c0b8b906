"""Provider's numbers -> checked numbers: a count out of range becomes unknown, an index out of range is an error."""

import msgspec
import structlog

from tg_base.llm.core import LlmChunk
from tg_schema.conversation import MAX_CALL_INDEX
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import ProtocolError

log = structlog.get_logger()

_COUNTS = ("in_token", "out_token", "cached_token", "reasoning_token", "cache_write_token")


def check_numbers(chunk: LlmChunk) -> LlmChunk:
    """The chunk with counts from 0 to `MAX_COUNT`; any other count becomes None (unknown) and is logged.

    A wrong count does not fail an answer: its text is correct, and has been paid for.

    Raises:
        ProtocolError: a tool call's index is below 0 or above `MAX_CALL_INDEX`, or a token's id exceeds 64 bits.
    """
    # Fast path: nearly all chunks are text without any number.
    if (
        chunk.in_token is None
        and chunk.out_token is None
        and chunk.cached_token is None
        and chunk.reasoning_token is None
        and chunk.cache_write_token is None
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
