"""Plan -> Mistral's chat completions over a loopback socket, after its public API reference ("Chat", "Models")."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from aiohttp import web
from msgspec import Meta
from typing_extensions import override

from tests.fakes.anthropic_transcript import sign_thought
from tests.fakes.loopback_server import LoopbackServer, Refused, read_image
from tests.fakes.openai_transcript import CalledFunction, Chosen, Image, ResponseFormat, Text, ToolSpec, check_strict
from tests.fakes.plan import Asked, Plan
from tests.fakes.strict import Strict
from tg_schema import Message, Sampling, TextPart, TgError, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

_REFUSALS: dict[type[TgError], tuple[int, dict[str, Any]]] = {
    BadRequest: (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": "no"}]}),
    ContextLengthExceeded: (
        400,
        {
            "object": "error",
            "message": "Prompt contains 5000 tokens, too large for model with 4096 maximum context length",
            "type": "invalid_request_prompt",
            "code": "3051",
        },
    ),
    ProviderAuth: (401, {"detail": "Unauthorized"}),
    NotFound: (404, {"object": "error", "message": "no", "type": "not_found", "param": None, "code": "1500"}),
    RateLimited: (429, {"object": "error", "message": "no", "type": "rate_limited", "param": None, "code": "1300"}),
    Unavailable: (503, {"object": "error", "message": "no", "type": "unreachable_backend", "code": "1100"}),
}


class Call(Strict, frozen=True):
    id: Annotated[str, Meta(min_length=1)]
    function: CalledFunction
    type: Literal["function"] = "function"
    index: int = 0


class System(Strict, frozen=True, tag_field="role", tag="system"):
    content: str


class User(Strict, frozen=True, tag_field="role", tag="user"):
    content: str | tuple[Text | Image, ...]


class AssistantPiece(Strict, frozen=True):
    type: Literal["text", "thinking"]
    text: str | None = None
    thinking: tuple[Text, ...] = ()
    signature: str | None = None


class Assistant(Strict, frozen=True, tag_field="role", tag="assistant"):
    content: str | tuple[AssistantPiece, ...] | None = None
    tool_calls: tuple[Call, ...] | None = None
    prefix: bool = False


class Result(Strict, frozen=True, tag_field="role", tag="tool"):
    content: str
    tool_call_id: str
    name: str | None = None


class Chat(Strict, frozen=True):
    """The body of `POST /v1/chat/completions`."""

    model: str
    messages: Annotated[tuple[System | User | Assistant | Result, ...], Meta(min_length=1)]
    stream: bool = False
    tools: Annotated[tuple[ToolSpec, ...], Meta(min_length=1)] | None = None
    tool_choice: Literal["auto", "none", "any", "required"] | Chosen | None = None
    response_format: ResponseFormat | None = None
    temperature: Annotated[float, Meta(ge=0, le=1.5)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    stop: str | tuple[str, ...] | None = None
    random_seed: Annotated[int, Meta(ge=0)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    prompt_mode: Literal["reasoning"] | None = None

    def check(self) -> None:
        """What the reference says beyond the shapes, and what strict schemas are refused for."""
        check_strict(self.response_format, self.tools)
        called = {call.id for turn in self.messages if isinstance(turn, Assistant) for call in turn.tool_calls or ()}
        for turn in self.messages:
            if isinstance(turn, Result) and turn.tool_call_id not in called:
                raise msgspec.ValidationError("Unexpected tool call id in tool results")
            if isinstance(turn, Assistant) and not turn.content and not turn.tool_calls:
                raise msgspec.ValidationError("Assistant message must have either content or tool_calls")
            pieces = turn.content if isinstance(turn, Assistant) and isinstance(turn.content, tuple) else ()
            for piece in pieces:
                said = "".join(thought.text for thought in piece.thinking)
                if piece.type == "thinking" and piece.signature != sign_thought(said):
                    raise msgspec.ValidationError("Invalid signature of a thinking chunk")


class MistralServer(LoopbackServer):
    """Bearer key, `POST /v1/chat/completions`, `GET /v1/models`."""

    unavailable: ClassVar[str] = "unreachable_backend"
    request_header: ClassVar[str] = "mistral-correlation-id"
    key: ClassVar[str] = "mistral-loopback"

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        if request.method != "GET" or request.path_qs != "/v1/models":
            return None
        if not self.authorized(request):
            return web.json_response({"detail": "Unauthorized"}, status=401)
        listed = [
            {"id": model.id, "object": "model", "created": 1, "owned_by": "mistralai", "capabilities": {}}
            for model in plan.models
        ]
        return web.json_response({"object": "list", "data": listed})

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if not self.authorized(request):
            raise Refused(web.json_response({"detail": "Unauthorized"}, status=401))
        if request.method != "POST" or request.path_qs != "/v1/chat/completions":
            raise Refused(web.json_response({"detail": "Not Found"}, status=404))
        try:
            chat = msgspec.json.decode(body, type=Chat)
            chat.check()
        except msgspec.MsgspecError as error:
            raise Refused(web.json_response({"detail": str(error)}, status=400)) from None
        if chat.model != self.model or not chat.stream:
            raise Refused(web.json_response({"object": "error", "type": "invalid_model"}, status=400))
        return _asked(chat)

    @override
    def refusal(self, plan: Plan) -> web.Response:
        status, said = _REFUSALS[plan.error]
        return web.json_response(said, status=status, headers=plan.retry_headers)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield event(self.model, {"role": "assistant", "content": ""})
        for thought in plan.reasoning:
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            yield event(self.model, {"content": [thinking]})
        if plan.reasoning:
            signed = {"type": "thinking", "thinking": [], "signature": sign_thought("".join(plan.reasoning))}
            yield event(self.model, {"content": [signed]})

    @override
    def piece(self, text: str) -> bytes:
        return event(self.model, {"content": text})

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        for index, call in enumerate(plan.calls):
            first, *rest = call.arguments
            function = {"name": call.name, "arguments": first}
            yield event(self.model, {"tool_calls": [{"index": index, "id": call.id, "function": function}]})
            for piece in rest:
                more = {"index": index, "id": "null", "function": {"name": "", "arguments": piece}}
                yield event(self.model, {"tool_calls": [more]})
        usage = None
        if plan.counts is not None:
            usage = {
                "prompt_tokens": plan.counts.tokens_in,
                "total_tokens": plan.counts.tokens_in + plan.counts.tokens_out,
                "completion_tokens": plan.counts.tokens_out,
                "prompt_tokens_details": {"cached_tokens": plan.counts.cached},
            }
        yield event(self.model, {"content": ""}, plan.finish, usage)
        yield b"data: [DONE]\n\n"

    @override
    def error(self, plan: Plan) -> bytes:
        _, said = _REFUSALS[plan.error]
        return b"data: " + json.dumps(said).encode() + b"\n\n"


def event(
    model: str, delta: dict[str, Any], finish_reason: str | None = None, usage: dict[str, Any] | None = None
) -> bytes:
    """One event of a stream."""
    said: dict[str, Any] = {
        "id": "cmpl-e5cc70bb28c444948073e77776eb30ef",
        "object": "chat.completion.chunk",
        "created": 1702256327,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    if usage is not None:
        said["usage"] = usage
    return b"data: " + json.dumps(said, ensure_ascii=False).encode() + b"\n\n"


def _asked(chat: Chat) -> Asked:
    shape = chat.response_format
    return Asked(
        model=chat.model,
        system="\n\n".join(turn.content for turn in chat.messages if isinstance(turn, System)),
        turns=tuple(_turn(turn) for turn in chat.messages if not isinstance(turn, System)),
        tools=tuple(
            Tool(tool.function.name, tool.function.description, tool.function.parameters) for tool in chat.tools or ()
        ),
        tool_choice=chat.tool_choice.function.name if isinstance(chat.tool_choice, Chosen) else chat.tool_choice,
        schema=shape.json_schema.schema if shape is not None and shape.json_schema is not None else None,
        strict=bool(shape and shape.json_schema and shape.json_schema.strict),
        json=shape is not None and shape.type == "json_object",
        sampling=Sampling(
            temperature=chat.temperature,
            top_p=chat.top_p,
            top_k=chat.top_k,
            max_tokens=chat.max_tokens,
            stop=(chat.stop,) if isinstance(chat.stop, str) else chat.stop or (),
            seed=chat.random_seed,
            presence_penalty=chat.presence_penalty,
            frequency_penalty=chat.frequency_penalty,
        ),
    )


def _turn(turn: User | Assistant | Result) -> Message:
    if isinstance(turn, Result):
        return Message("tool", turn.content, tool_call_id=turn.tool_call_id, name=turn.name)
    if isinstance(turn, Assistant):
        calls = tuple(ToolCall(it.id, it.function.name, it.function.arguments) for it in turn.tool_calls or ())
        pieces = (AssistantPiece("text", turn.content),) if isinstance(turn.content, str) else turn.content or ()
        return Message("assistant", tuple(_piece(piece) for piece in pieces), tool_calls=calls)
    content = turn.content
    return Message("user", content if isinstance(content, str) else tuple(_part(block) for block in content))


def _piece(piece: AssistantPiece) -> Part:
    if piece.type == "text":
        return TextPart(piece.text or "")
    return ReasoningPart("".join(thought.text for thought in piece.thinking), piece.signature)


def _part(block: Text | Image) -> Part:
    if isinstance(block, Text):
        return TextPart(block.text)
    return read_image(block.image_url.url)
