"""The body of `POST /v1/completions` as it comes, by OpenAI's API reference."""

from typing import Annotated, Any

import msgspec

from tg_gateway.dialects.chat import AnyCount, SamplingBody, TextInputs

MAX_LOGPROBS = 5
"""OpenAI's limit."""


class CompletionBody(SamplingBody, frozen=True, kw_only=True):
    """Every field that this door knows; null is as good as absent."""

    prompt: TextInputs | None = None
    max_tokens: AnyCount | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    suffix: str | None = None

    # vLLM's. Refused: what they ask for would be missing in the answer, or the prompt would be another one.
    add_special_tokens: bool | None = None
    prompt_embeds: Any = None
    prompt_logprobs: Any = None
    return_token_ids: bool | None = None
    truncate_prompt_tokens: Any = None
