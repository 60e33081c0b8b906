"""The objects of an answer in OpenAI's shape; a field that has its default value is left out."""

from typing import Literal

import msgspec

from tg_gateway.dialects.chat.body import ExtraContent
from tg_gateway.dialects.chat.logprobs import Logprobs
from tg_schema import Usage


class PromptTokensDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parts of the prompt's tokens; unknown ones are left out."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class CompletionTokensDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parts of the answer's tokens; unknown ones are left out."""

    reasoning_tokens: int | None = None


class CompletionUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The token counts of all choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


def describe_usage(total: Usage) -> CompletionUsage | None:
    """The sums in OpenAI's shape; None if the provider reported none."""
    if total.in_token is None and total.out_token is None:
        return None
    prompt, completion = total.in_token or 0, total.out_token or 0
    has_details = total.cached_token is not None or total.cache_write_token is not None
    return CompletionUsage(
        prompt,
        completion,
        prompt + completion,
        PromptTokensDetails(total.cached_token, total.cache_write_token) if has_details else None,
        CompletionTokensDetails(total.reasoning_token) if total.reasoning_token is not None else None,
    )


ChatEnding = Literal["stop", "length", "tool_calls", "content_filter"]
"""OpenAI's `finish_reason`. A `FinishReason` that is none of these has to be translated: types tell where."""


class FunctionDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a call; the SDKs concatenate both fields, so the name comes once."""

    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of a call; `index` says which call."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta | None = None
    extra_content: ExtraContent | None = None


class ReasoningDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Thinking that the provider has signed; the SDKs concatenate both texts by `index`."""

    index: int
    type: str
    text: str
    signature: str | None = None


class Delta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new in a message; the SDKs concatenate every field, so the role comes once."""

    role: Literal["assistant"] | None = None
    reasoning_content: str | None = None
    reasoning_details: tuple[ReasoningDelta, ...] = ()
    content: str | None = None
    tool_calls: tuple[CallDelta, ...] = ()


class ChunkChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece of one choice."""

    index: int
    delta: Delta
    finish_reason: ChatEnding | None
    logprobs: Logprobs | None = None


class WholeFunction(msgspec.Struct, frozen=True):
    """The function that the model calls."""

    name: str
    arguments: str


class WholeCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A whole call."""

    id: str
    type: str
    function: WholeFunction
    extra_content: ExtraContent | None = None


class WholeMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The message of a choice. `refusal` is required by OpenAI's description."""

    role: str
    content: str | None
    refusal: None
    reasoning_content: str | None = None
    reasoning_details: tuple[ReasoningDelta, ...] = ()
    tool_calls: tuple[WholeCall, ...] = ()


class WholeChoice(msgspec.Struct, frozen=True):
    """One answer."""

    index: int
    message: WholeMessage
    finish_reason: ChatEnding
    logprobs: Logprobs | None


class NamedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the body of a whole answer begins."""

    id: str
    object: str
    created: int
    model: str


class ChatCompletion(NamedAnswer, frozen=True):
    """The body of a whole answer. `system_fingerprint` says nothing, but `text-generation` requires it."""

    system_fingerprint: str
    choices: tuple[WholeChoice, ...]
    usage: CompletionUsage | None = None
