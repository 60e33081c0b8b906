"""Events of OpenAI's chat completions -> LlmChunks, after the public API reference.

Only the fields that are used are declared; other fields are skipped.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from tg_base.llm import CallNumbers, ErrorDetail, LlmChunk, UsageDeltas, event_error, write_signature
from tg_flow.providers.openai.request import GOOGLE, ThinkingField
from tg_flow.providers.openai.thinking import OpenThinking
from tg_schema import FinishReason, ModelInfo, Token, ToolCallDelta, Usage
from tg_schema.completion import NO_TOKEN_ID
from tg_schema.deltas import Count
from tg_schema.errors import ContentFilter

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
}
"""A server's finish reason -> ours; every other reason counts as "stop"."""


# `gc=False` here and below: an object without containers cannot be part of a cycle, so the collector may skip it.
class _TopLogprob(msgspec.Struct, frozen=True, gc=False):
    logprob: float
    token: str = ""


class _TokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float | None = None
    bytes: tuple[Annotated[int, msgspec.Meta(ge=0, le=255)], ...] | None = None
    top_logprobs: tuple[_TopLogprob, ...] | None = None


class _Logprobs(msgspec.Struct, frozen=True):
    content: tuple[_TokenLogprob, ...] | None = None


class Function(msgspec.Struct, frozen=True, gc=False):
    """The function that is called."""

    name: str | None = None
    arguments: str | None = None


class _Google(msgspec.Struct, frozen=True, gc=False):
    thought_signature: str | None = None


class _ExtraContent(msgspec.Struct, frozen=True):
    google: _Google | None = None


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None
    extra_content: _ExtraContent | None = None


class Delta(msgspec.Struct, frozen=True):
    """The new part of an answer."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: tuple[dict[str, Any], ...] | None = None
    refusal: str | None = None
    tool_calls: tuple[CallDelta, ...] | None = None


_NO_DELTA = Delta()


class Choice(msgspec.Struct, frozen=True):
    """A new part of one of the answers."""

    index: int = 0
    delta: Delta | None = _NO_DELTA
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None

    @property
    def has_content(self) -> bool:
        """Whether it has any content."""
        return bool(self.finish_reason or self.logprobs or (self.delta or _NO_DELTA) != _NO_DELTA)


class _PromptDetails(msgspec.Struct, frozen=True, gc=False):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _CompletionDetails(msgspec.Struct, frozen=True, gc=False):
    reasoning_tokens: int | None = None


class Counts(msgspec.Struct, frozen=True):
    """The server's token counts so far."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None

    @property
    def totals(self) -> Usage:
        """These counts in the fields of our records."""
        prompt, completion = self.prompt_tokens_details, self.completion_tokens_details
        return Usage(
            in_token=self.prompt_tokens,
            out_token=self.completion_tokens,
            cached_token=None if prompt is None else prompt.cached_tokens,
            reasoning_token=None if completion is None else completion.reasoning_tokens,
            cache_write_token=None if prompt is None else prompt.cache_write_tokens,
        )


class Fault(msgspec.Struct, frozen=True):
    """A server's description of an error."""

    code: str | int | None = None
    type: str | None = None
    message: str | None = None

    @property
    def word(self) -> str | None:
        """The error's type. Some compatible servers write it before the colon of the message instead."""
        return self.type or (self.message or "").partition(":")[0]


class ChatEvent(msgspec.Struct, frozen=True):
    """One event of a stream: a part of an answer, its usage (with empty `choices`), or an error."""

    choices: tuple[Choice, ...] | None = None
    model: str | None = None
    usage: Counts | None = None
    error: Fault | str | None = None


class _Model(msgspec.Struct, frozen=True):
    id: str
    owned_by: str | None = None
    created: Count | None = None


class _ModelList(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


_FIELD_CODES = {"unsupported_parameter", "unsupported_value"}
_REASONING_ADVICE = (
    'reasoning models take no temperature, and need max_tokens_field = "max_completion_tokens" in their options'
)
_DONE = b"[DONE]"
_decode = msgspec.json.Decoder(ChatEvent).decode


def error_detail(body: bytes) -> ErrorDetail:
    """The error code in an error's body: its `code`, or else its `type`; "" if it has none."""
    fault = _decode(body).error
    return ErrorDetail(str(fault.code or fault.type or "") if isinstance(fault, Fault) else "")


def reasoning_error_detail(body: bytes) -> ErrorDetail:
    """As `error_detail`, for a provider that is known to have reasoning models."""
    detail = error_detail(body)
    advice = _REASONING_ADVICE if detail.code in _FIELD_CODES else ""
    return msgspec.structs.replace(detail, advice=advice)


def model_list(body: bytes) -> tuple[ModelInfo, ...]:
    """The models in the answer to `GET /models`."""
    listed = msgspec.json.decode(body, type=_ModelList).data
    return tuple(ModelInfo(model.id, model.owned_by or "", model.created or 0) for model in listed)


class StreamDecoder:
    """Decodes one answer: events in, chunks out.

    It keeps the totals so far, because our counts are deltas, and it numbers each answer's tool calls.

    Args:
        thinking_field: where the server wants earlier thinking back; None = nowhere.

    Attributes:
        done: whether the stream's end marker has arrived.
    """

    __slots__ = ("_calls", "_counts", "_thinking", "done")

    def __init__(self, thinking_field: ThinkingField | None = None) -> None:
        self.done = False
        self._counts = UsageDeltas()
        self._calls: dict[int, CallNumbers] = defaultdict(CallNumbers)
        self._thinking: dict[int, OpenThinking] | None = None
        if thinking_field is not None and thinking_field != "extra_content":
            self._thinking = defaultdict(partial(OpenThinking, thinking_field))

    def chunk(self, data: bytes) -> LlmChunk | None:
        """The chunk of an event's data; None for an event without content, for instance the role.

        Raises:
            TgError: the provider reports an error in its stream.
            Exception: as `EventDecoder`.
        """
        if data[:6] == _DONE:
            self.done = True
            return None
        event = self.read(data)
        # Fast path: nearly all events have one choice with text only.
        choice = event.choices[0] if event.choices else None
        if choice is None or choice.index or choice.finish_reason or choice.logprobs or event.usage or event.error:
            return self._uncommon(event)
        delta = choice.delta
        if delta is None:
            return None
        is_text = not (delta.reasoning_content or delta.reasoning or delta.tool_calls)
        if delta.content and is_text and self._thinking is None:
            return LlmChunk(delta.content, model=event.model)
        return self._convert_delta(choice, event.model)

    def read(self, data: bytes) -> ChatEvent:
        """Decode this data. A variant of the API converts its own events to this type. Raises as `chunk`."""
        return _decode(data)

    def _uncommon(self, event: ChatEvent) -> LlmChunk | None:
        if event.error is not None:
            fault = event.error if isinstance(event.error, Fault) else Fault()
            raise event_error(fault.code, fault.word, fault.message)
        # Each event has one choice, or none but the usage. Some servers also send the other choices, left empty.
        choice = next((choice for choice in event.choices or () if choice.has_content), Choice())
        if choice.finish_reason == "error":
            raise event_error(None, None)
        chunk = self._convert_delta(choice, event.model) or LlmChunk(model=event.model, index=choice.index)
        chunk = msgspec.structs.replace(chunk, finish_reason=self._finish(choice), tokens=_tokens(choice.logprobs))
        if event.usage is not None:
            # Some servers repeat the running totals in each event.
            chunk = chunk.with_usage(self._counts.add_totals(event.usage.totals))
        return None if chunk == LlmChunk(model=event.model, index=choice.index) else chunk

    def _finish(self, choice: Choice) -> FinishReason | None:
        """Our finish reason. By the API reference, an answer whose request forces a tool ends with "stop"."""
        if not choice.finish_reason:
            return None
        ours = FINISH_REASONS.get(choice.finish_reason, "stop")
        return "tool_calls" if ours == "stop" and self._calls[choice.index].count else ours

    def _convert_delta(self, choice: Choice, model: str | None) -> LlmChunk | None:
        delta = choice.delta or _NO_DELTA
        if delta.refusal:
            raise ContentFilter("the model refused to answer this request")
        reasoning = delta.reasoning_content or delta.reasoning or None
        signature = None if self._thinking is None else _sign(self._thinking[choice.index], choice, delta)
        if not delta.content and not reasoning and not delta.tool_calls and not signature:
            return None
        numbers = self._calls[choice.index]
        return LlmChunk(
            delta.content or "",
            model=model,
            index=choice.index,
            reasoning=reasoning,
            signature=signature,
            tool_calls=tuple(_call(call, numbers) for call in delta.tool_calls or ()),
        )


def _sign(thinking: OpenThinking, choice: Choice, delta: Delta) -> str | None:
    """The signature of the thinking that ends with this delta."""
    thinking.add(shown=bool(delta.reasoning_content or delta.reasoning), details=delta.reasoning_details or ())
    return thinking.sign() if delta.content or delta.tool_calls or choice.finish_reason else None


def _call(call: CallDelta, numbers: CallNumbers) -> ToolCallDelta:
    """A piece of a call. Pieces of several calls may alternate."""
    function = call.function or Function()
    number = numbers.number(call.index, call.id, function.name)
    google = call.extra_content and call.extra_content.google
    signed = google and google.thought_signature
    signature = write_signature(GOOGLE, signed) if signed else None
    return ToolCallDelta(number, call.id or None, function.name or None, function.arguments or "", signature)


def _tokens(logprobs: _Logprobs | None) -> tuple[Token, ...]:
    if logprobs is None:
        return ()
    return tuple(
        Token(
            id=NO_TOKEN_ID,
            text=token.token,
            logprob=token.logprob,
            top=tuple((NO_TOKEN_ID, top.logprob) for top in token.top_logprobs or ()),
            top_texts=tuple(top.token for top in token.top_logprobs or ()),
            raw_bytes=None if token.bytes is None else bytes(token.bytes),
        )
        for token in logprobs.content or ()
    )
