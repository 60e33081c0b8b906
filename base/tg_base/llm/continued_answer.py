"""Request for the rest of an answer -> can a provider continue exactly there; and the last record, which says so.

A provider that cannot refuses: its requestor then ends the answer with the error of the attempt that was lost.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import msgspec

from tg_schema import TextCompletionRequest, TextCompletionResponse, Usage
from tg_schema.errors import BadRequest
from tg_schema.features import CONTINUATION, Feature
from tg_schema.prompt_size import TOKEN_BYTES, measure_text

CHAT_FEATURES: Final[frozenset[Feature]] = frozenset(
    {
        *(CONTINUATION, "history", "images", "developer", "reasoning_turns", "openai_fields"),
        *("tools", "allowed_tools", "parallel_tool_calls", "strict_tools"),
        *("stop", "stop_ids", "seed", "top_p", "top_k", "min_p", "typical_p", "logit_bias", "ignore_eos"),
    }
)
"""The features of a request whose answer a chat API can continue. A grammar or a penalty would start over there."""
SINGLE_ANSWER: Final[frozenset[Feature]] = frozenset(
    {"n", "best_of", "logprobs", "prompt_logprobs", "end_token", "echo", "suffix"}
)
"""Features that no continued answer has."""


def check_continuation(request: TextCompletionRequest, able: frozenset[Feature]) -> None:
    """Check that an answer can be continued.

    Args:
        request: the request for its rest.
        able: the features that such a request may need.

    Raises:
        BadRequest: this answer cannot be continued.
    """
    if not request.streaming or (request.features - able) | (request.features & SINGLE_ANSWER):
        raise BadRequest("an answer to this request cannot be continued; leave continuation out")


def find_chat_prefix(request: TextCompletionRequest) -> str:
    """The text after which a chat API continues.

    Raises:
        BadRequest: a chat template would change the text.
    """
    text = "".join(request.continuation)
    if text != text.strip():
        raise BadRequest("continuation: a template of chats would strip its spaces; ask for the whole answer")
    return text


def find_rest(limit: int, request: TextCompletionRequest) -> int:
    """The tokens of an answer's limit that are certainly left, although the tokens of its beginning were not counted.

    Raises:
        BadRequest: maybe no token is left.
    """
    # No token is shorter than a byte.
    rest = limit - measure_text(request.continuation)
    if rest < 1:
        raise BadRequest("continuation: it may have all of max_tokens; ask for the whole answer")
    return rest


def end_continued(record: TextCompletionResponse, texts: Sequence[str]) -> TextCompletionResponse:
    """The last record of an answer that continued after these texts: it says where, and includes the lost calls' usage.

    The usage of the lost calls is estimated: each read the prompt, and the texts before its own.
    """
    tokens = [-(-measure_text(text) // TOKEN_BYTES) for text in texts]
    usage = record.usage
    if usage.in_token is not None:
        unread = accumulate(reversed(tokens))
        usage += Usage(in_token=sum(max(usage.in_token - after, 0) for after in unread))
    if usage.out_token is not None:
        usage += Usage(out_token=sum(tokens))
    continued_at = tuple(accumulate(map(len, texts)))
    return msgspec.structs.replace(record.with_usage(usage), continued_at=continued_at)
