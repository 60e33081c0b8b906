"""The body of a completion -> a request record for each prompt: every parameter has its field there, or is refused."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from tg_gateway.dialects import FoundModel, InvalidParameter
from tg_gateway.dialects.chat import (
    AnyCount,
    SamplingBody,
    TextInput,
    TextInputs,
    read_form,
    read_inputs,
    read_sampling,
    refuse_unsupported,
)
from tg_schema import TextCompletionRequest

MAX_LOGPROBS = 5
"""OpenAI's limit."""


class CompletionBody(SamplingBody, frozen=True, kw_only=True):
    """Every field that this door knows; null counts as absent."""

    prompt: TextInputs | None = None
    max_tokens: AnyCount | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = None
    suffix: str | None = None

    # vLLM's. These fields are refused: what they ask for would be missing in the answer, or the prompt would differ.
    add_special_tokens: bool | None = None
    prompt_embeds: Any = None
    prompt_logprobs: Any = None
    return_token_ids: bool | None = None
    truncate_prompt_tokens: Any = None


DEFAULT_MAX_TOKENS: Final = 16
"""OpenAI's default; without a limit, a completion may continue to the end of the context."""
MAX_ANSWERS: Final = 2048
"""The most answers of one request: prompts times `n`."""
_REFUSED: Final = {
    "prompt_embeds": "send text or token ids",
    "prompt_logprobs": "send echo with logprobs",
    "return_token_ids": "ask POST /tokenize for the ids",
    "truncate_prompt_tokens": "send a prompt that fits",
}
"""Fields that are refused where they ask for something."""


def read_prompts(body: CompletionBody) -> tuple[TextInput, ...]:
    """The prompts to complete.

    Raises:
        InvalidParameter: there is nothing, or too much.
    """
    prompts = read_inputs("prompt", body.prompt, MAX_ANSWERS)
    if len(prompts) * (body.n or 1) > MAX_ANSWERS:
        raise InvalidParameter(f"prompt: at most {MAX_ANSWERS} answers can be asked for: prompts times n", "prompt")
    return prompts


def read_requests(
    body: CompletionBody, prompts: Sequence[TextInput], found: FoundModel
) -> tuple[TextCompletionRequest, ...]:
    """The request records of a body, one for each prompt.

    A text is the whole prompt where the model takes raw text. A model behind a chat API gets the prompt as a user's
    message.

    Args:
        body: the client's body.
        prompts: its prompts.
        found: the model that its `model` means.

    Raises:
        BadRequest: a parameter is senseless, or asks for what cannot be answered; mostly InvalidParameter.
    """
    _check(body)
    whole = _read_parameters(body, found)
    requests = tuple(_with_prompt(whole, prompt, found) for prompt in prompts)
    found.check(*requests)
    return requests


def is_scoring(body: CompletionBody) -> bool:
    """Whether nothing is generated: the answer is the prompt with its log-probabilities."""
    return body.max_tokens == 0


def _check(body: CompletionBody) -> None:
    refuse_unsupported(body, _REFUSED)
    scores = body.echo and body.logprobs is not None and (body.n or 1) == (body.best_of or 1) == 1
    InvalidParameter.refuse_first(
        (
            body.add_special_tokens is False,
            "add_special_tokens",
            "unsupported_value",
            "add_special_tokens: ask POST /tokenize without them, and send the ids as prompt",
        ),
        (
            body.stream and (body.best_of or 1) > (body.n or 1),
            "best_of",
            "unsupported_value",
            "best_of cannot be streamed: which answers are the best is known at their end; send stream = false",
        ),
        (
            is_scoring(body) and not scores,
            "max_tokens",
            "invalid_value",
            "max_tokens: 0 scores a prompt; send echo = true and logprobs with it and neither n nor best_of",
        ),
    )


def _read_parameters(body: CompletionBody, found: FoundModel) -> TextCompletionRequest:
    scoring = is_scoring(body)
    sampling = read_sampling(
        body,
        # A record that asks for no token at all would be invalid; the operation says that nothing is generated.
        max_tokens=None if scoring else body.max_tokens or DEFAULT_MAX_TOKENS,
        logprobs=None if scoring else body.logprobs,
        prompt_logprobs=body.logprobs if body.echo else None,
    )
    return TextCompletionRequest(
        operation="score" if scoring else None,
        streaming=bool(body.stream) and not scoring,
        model=found.model,
        sampling=sampling,
        echo=bool(body.echo) and not scoring,
        suffix=body.suffix or None,
        adapter=found.adapter,
        user=body.user,
        priority=body.priority,
        cache_key=body.prompt_cache_key,
        **read_form(body),
    )


def _with_prompt(whole: TextCompletionRequest, prompt: TextInput, found: FoundModel) -> TextCompletionRequest:
    if not isinstance(prompt, str):
        return msgspec.structs.replace(whole, prompt_ids=prompt)
    # The features of a model that is not announced yet are unknown: its processor will refuse what it lacks.
    return msgspec.structs.replace(whole, prompt=prompt, raw=found.may_have("raw"))
