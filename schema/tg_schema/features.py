"""Optional features: what a request may need beyond a system text and a prompt, and what a provider announces."""

from collections.abc import Iterable
from typing import Final, Literal, get_args

CommonFeature = Literal[
    "history",
    "images",
    "tools",
    "json",
    "schema",
    "stop",
    "seed",
    "top_p",
    "top_k",
    "penalties",
    "logprobs",
]
"""Features with a field in nearly every chat API; processors of version 0.1.0 can announce no others.

history: earlier turns in `messages`; json and schema: the answer's form; the others are fields of the request.
"""

Feature = Literal[
    CommonFeature,
    # Sampling.
    "n",
    "best_of",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "logit_bias",
    "packed_bias",
    "packed_floats",
    "min_tokens",
    "ignore_eos",
    "stop_ids",
    "keep_stop",
    "prompt_logprobs",
    "end_token",
    # The prompt and the form of the answer.
    "raw",
    "prompt_ids",
    "max_prompt_tokens",
    "suffix",
    "echo",
    "adapter",
    "reasoning",
    "regex",
    "choice",
    "continuation",
    # Tools and turns.
    "parallel_tool_calls",
    "allowed_tools",
    "strict_tools",
    "developer",
    "reasoning_turns",
    # Other operations.
    "count_tokens",
    "tokenize",
    "detokenize",
    "token_texts",
    "score",
    "embed",
    "embed_ids",
    "pooling",
    "dimensions",
    "truncate",
    "load_adapter",
    # A vendor's own fields and parts, passed on unchanged.
    "anthropic_fields",
    "openai_fields",
]
"""packed_bias: `logit_bias` as one text of whole numbers, which only gateways ask for. packed_floats: the same with
fractions, or the request's field `packed_floats`. developer and reasoning_turns: turns and parts that older processors
cannot read. The others are fields of the request of that name, or operations."""

CONTINUATION: Final[Feature] = "continuation"
"""The feature of a model whose answers another process may continue after the death of their own."""
COMMON_FEATURES: frozenset[Feature] = frozenset(get_args(CommonFeature))


def describe_missing(missing: Iterable[str]) -> str:
    """The sentence with which a request for these features is refused."""
    return f"the model can't do this: {', '.join(sorted(missing))}; leave it out, or ask another model"
