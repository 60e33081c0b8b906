"""Our own JSON <-> records: field names with underscores, keys that are null left out.

The shapes are the seed's, and what the predecessor's clients read: `end_of_stream` always stands, text is never null.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects.dialect import Dialect
from tg_gateway.dialects.foreign_fields import check_names
from tg_schema import (
    AgentRequest,
    AgentResponse,
    ModelInfo,
    PromptRequest,
    PromptResponse,
    ServiceSpec,
    TextCompletionRequest,
    TextCompletionResponse,
    TgError,
    Token,
    ToolCallDelta,
    decode,
    encode,
)
from tg_schema.agent import ChunkType
from tg_schema.errors import BadRequest


class _Failed(msgspec.Struct, frozen=True, omit_defaults=True):
    type: str
    message: str
    retry_after: float | None = None


class _ErrorBody(msgspec.Struct, frozen=True):
    error: _Failed


class _Failure(msgspec.Struct, frozen=True):
    error: _Failed
    end_of_stream: bool = True


def _make_failed(error: TgError) -> _Failed:
    return _Failed(error.type, error.message, error.retry_after)


def refusal(error: TgError) -> bytes:
    """`{"error":{"type","message"}}`, with `retry_after` in seconds where it is known."""
    return encode(_ErrorBody(_make_failed(error)))


class _Native:
    def failure(self, error: TgError) -> bytes:
        return encode(_Failure(_make_failed(error)))

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
        check_names("text-completion", TextCompletionRequest, body)
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
        check_names("prompt", _PromptBody, body)
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


class _AgentEvent(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    chunk_type: ChunkType
    message_type: ChunkType
    """The predecessor's name for the same."""
    content: str
    end_of_message: bool
    end_of_dialog: bool
    message_id: str | None = None
    path: tuple[str, ...] = ()
    tool: str | None = None
    arguments: str | None = None
    call_id: str | None = None
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: str | None = None


class _AgentFailure(msgspec.Struct, frozen=True):
    content: str
    error: _Failed
    chunk_type: ChunkType = "error"
    message_type: ChunkType = "error"
    end_of_message: bool = True
    end_of_dialog: bool = True


class Agent(_Native, Dialect[AgentRequest, AgentResponse]):
    """`{"question","group","state","history","streaming"}` in; `{"chunk_type","content","end_of_message", ...}` out."""

    @override
    def parse(self, body: bytes) -> AgentRequest:
        request = decode(AgentRequest, body)
        check_names("agent", AgentRequest, body)
        if not (request.question or "").strip():
            raise BadRequest("question is missing: send a JSON object with `question` (text)")
        return request

    @override
    def event(self, record: AgentResponse) -> bytes:
        kind = record.chunk_type or "answer"
        return encode(
            _AgentEvent(
                chunk_type=kind,
                message_type=kind,
                content=record.content or "",
                end_of_message=bool(record.end_of_message),
                end_of_dialog=record.last,
                message_id=record.message_id,
                path=record.path,
                tool=record.tool,
                arguments=record.arguments,
                call_id=record.call_id,
                in_token=record.in_token,
                out_token=record.out_token,
                model=record.model,
                finish_reason=record.finish_reason,
            )
        )

    @override
    def failure(self, error: TgError) -> bytes:
        return encode(_AgentFailure(error.message, _make_failed(error)))


class AnyService(_Native, Dialect[Any, Any]):
    """A service without a row: the fields of its records, null ones left out, and `end_of_stream`."""

    def __init__(self, spec: ServiceSpec[Any, Any]) -> None:
        self._spec = spec
        self._fields = tuple(name for name in spec.response.__struct_fields__ if name not in {"error", "end_of_stream"})

    @override
    def parse(self, body: bytes) -> Any:
        request = decode(self._spec.request, body)
        check_names(self._spec.name, self._spec.request, body)
        return request

    @override
    def event(self, record: Any) -> bytes:
        said = {name: value for name in self._fields if (value := getattr(record, name)) is not None}
        return encode(said | {"end_of_stream": record.last})


DIALECTS: Final[Mapping[str, Dialect[Any, Any]]] = {
    "text-completion": TextCompletion(),
    "prompt": Prompt(),
    "agent": Agent(),
}
"""By service."""


def find_dialect(spec: ServiceSpec[Any, Any]) -> Dialect[Any, Any]:
    """How a service is asked and answered."""
    return DIALECTS.get(spec.name) or AnyService(spec)
