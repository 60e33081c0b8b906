"""Our own JSON <-> records: field names with underscores, keys that are null left out.

The shapes are the seed's, and what the predecessor's clients read: `end_of_stream` always stands, text is never null.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects.dialect import Dialect
from tg_schema import (
    ModelInfo,
    PromptRequest,
    PromptResponse,
    TextCompletionRequest,
    TextCompletionResponse,
    TgError,
    Token,
    ToolCallDelta,
)
from tg_schema.codec import decode, encode
from tg_schema.errors import BadRequest


class _Failed(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    message: str
    retry_after: float | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: _Failed


class _Failure(msgspec.Struct, frozen=True):
    error: _Failed
    end_of_stream: bool = True


def _failed(error: TgError) -> _Failed:
    return _Failed(error.type, error.message, error.retry_after)


def refusal(error: TgError) -> bytes:
    """`{"error":{"type","message"}}`, with `retry_after` in seconds where it is known."""
    return encode(_Refusal(_failed(error)))


class _Native:
    def failure(self, error: TgError) -> bytes:
        return encode(_Failure(_failed(error)))

    def refusal(self, error: TgError) -> bytes:
        return refusal(error)


class _CompletionEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    response: str
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    end_of_stream: bool
    finish_reason: str | None = None
    reasoning: str | None = None
    tokens: tuple[Token, ...] = ()
    tool_calls: tuple[ToolCallDelta, ...] = ()
    cached_token: int | None = None
    reasoning_token: int | None = None
    models: tuple[ModelInfo, ...] = ()


class TextCompletion(_Native, Dialect[TextCompletionRequest, TextCompletionResponse]):
    """`{"system","prompt","streaming", ...}` in, `{"response","end_of_stream", ...}` out."""

    @override
    def parse(self, body: bytes) -> TextCompletionRequest:
        request = decode(TextCompletionRequest, body)
        if not (request.prompt or request.messages or request.operation):
            raise BadRequest("prompt is missing: send a JSON object with `prompt` (text) or `messages`")
        return request

    @override
    def event(self, record: TextCompletionResponse) -> bytes:
        return encode(
            _CompletionEvent(
                response=record.response or "",
                in_token=record.in_token,
                out_token=record.out_token,
                model=record.model,
                end_of_stream=record.last,
                finish_reason=record.finish_reason,
                reasoning=record.reasoning,
                tokens=record.tokens,
                tool_calls=record.tool_calls,
                cached_token=record.cached_token,
                reasoning_token=record.reasoning_token,
                models=record.models,
            )
        )


class _PromptBody(msgspec.Struct, frozen=True):
    id: str | None = None
    variables: dict[str, msgspec.Raw] | None = None
    terms: dict[str, str] | None = None
    streaming: bool | None = False


class _PromptEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    text: str | None = None
    object: str | None = None
    end_of_stream: bool
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: str | None = None


class Prompt(_Native, Dialect[PromptRequest, PromptResponse]):
    """`{"id","variables","streaming"}` in, `{"text" or "object","end_of_stream", ...}` out."""

    @override
    def parse(self, body: bytes) -> PromptRequest:
        asked = decode(_PromptBody, body)
        if not asked.id:
            raise BadRequest("id is missing: send a JSON object with `id` (a template's name) and `variables`")
        if asked.variables and asked.terms:
            raise BadRequest("send `variables` (any JSON) or `terms` (JSON text), not both")
        terms = asked.terms or _terms(asked.variables or {})
        return PromptRequest(id=asked.id, terms=terms, streaming=asked.streaming)

    @override
    def event(self, record: PromptResponse) -> bytes:
        text = "" if record.text is None and record.object is None else record.text
        return encode(
            _PromptEvent(
                text=text,
                object=record.object,
                end_of_stream=record.last,
                in_token=record.in_token,
                out_token=record.out_token,
                model=record.model,
                finish_reason=record.finish_reason,
            )
        )


def _terms(variables: Mapping[str, msgspec.Raw]) -> dict[str, str]:
    """Each variable's JSON text, as it was written."""
    try:
        return {name: bytes(value).decode() for name, value in variables.items()}
    except UnicodeDecodeError:
        raise BadRequest("not valid JSON: the text is not UTF-8") from None


DIALECTS: Final[Mapping[str, Dialect[Any, Any]]] = {"text-completion": TextCompletion(), "prompt": Prompt()}
"""By service."""
