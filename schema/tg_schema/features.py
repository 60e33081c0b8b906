"""Optional features: what a request may need beyond a system text and a prompt, and what a provider announces."""

from typing import Literal, get_args

Feature = Literal[
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
"""history: earlier turns in `messages`; json and schema: the answer's form; the others are fields of the request."""

FEATURES: frozenset[Feature] = frozenset(get_args(Feature))
