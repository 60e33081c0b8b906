"""Plan -> Anthropic's Messages over a loopback socket, after the public API reference."""

import json
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from aiohttp import web
from typing_extensions import override

from tests.fakes.anthropic_transcript import (
    REDACTED,
    Base64,
    Image,
    MessagesBody,
    RedactedThought,
    Text,
    Thought,
    ToolResult,
    ToolUse,
    delta,
    error_body,
    event,
    sign_thought,
)
from tests.fakes.anthropic_transcript import Tool as WireTool
from tests.fakes.anthropic_transcript import Turn as WireTurn
from tests.fakes.google_account import LOCATION, PROJECT, TOKEN, token
from tests.fakes.loopback_server import LoopbackServer, Refused
from tests.fakes.plan import Asked, Counts, Plan, PlannedCall
from tg_schema import ImagePart, Message, Sampling, TextPart, TgError, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

_STATUS: dict[type[TgError], tuple[int, str]] = {
    BadRequest: (400, "invalid_request_error"),
    ContextLengthExceeded: (400, "invalid_request_error"),
    ProviderAuth: (401, "authentication_error"),
    NotFound: (404, "not_found_error"),
    RateLimited: (429, "rate_limit_error"),
    Unavailable: (529, "overloaded_error"),
}
_FINISH = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


class AnthropicServer(LoopbackServer):
    """Key, version, `POST /v1/messages`, `GET /v1/models`."""

    unavailable: ClassVar[str] = "overloaded_error"
    request_header: ClassVar[str] = "request-id"

    keep_alive = event("ping")
    key: ClassVar[str] = "sk-ant-loopback"

    def __init__(self) -> None:
        super().__init__()
        self._block = 0
        self._by_tool = False

    @override
    def authorized(self, request: web.Request) -> bool:
        """As the reference says or as the SDK sends it."""
        sent = request.headers.get("x-api-key"), request.headers.get("authorization")
        return sent in {(self.key, None), (None, f"Bearer {self.key}")}

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        if request.method != "GET" or request.path != "/v1/models":
            return None
        if not self.authorized(request):
            return _failed(401, "authentication_error")
        data = [
            {"type": "model", "id": model.id, "display_name": model.id, "created_at": "2026-02-19T00:00:00Z"}
            for model in plan.models
        ]
        return web.json_response({"data": data, "has_more": False, "first_id": None, "last_id": None})

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if not self.authorized(request):
            raise Refused(_failed(401, "authentication_error"))
        model = self.place(request)
        if request.content_type != "application/json" or not self.versioned(request, body):
            raise Refused(_failed(400, "invalid_request_error"))
        try:
            counts, betas = self.counts(request), request.headers.get("anthropic-beta", "")
            asked = MessagesBody.checked(body, counts=counts, betas=betas)
        except msgspec.MsgspecError as error:
            raise Refused(_failed(400, "invalid_request_error", str(error))) from None
        if (model or asked.model) != self.model or (model and asked.model):
            raise Refused(_failed(404, "not_found_error"))
        return _asked(asked, self.model)

    def place(self, request: web.Request) -> str | None:
        """The model's name, where the path has it.

        Raises:
            Refused: there is nothing at this path.
        """
        if request.method != "POST" or request.path_qs not in {"/v1/messages", "/v1/messages/count_tokens"}:
            raise Refused(_failed(404, "not_found_error"))
        return None

    def counts(self, request: web.Request) -> bool:
        """Whether only the prompt's tokens are asked for."""
        return request.path == "/v1/messages/count_tokens"

    @override
    def whole(self, request: web.Request, plan: Plan, asked: Asked) -> web.Response | None:
        if not self.counts(request):
            return None
        return web.json_response({"input_tokens": plan.counts.tokens_in if plan.counts else 0})

    def versioned(self, request: web.Request, body: bytes) -> bool:
        """Whether the API's version stands where it must, and only there."""
        return "anthropic-version" in request.headers and b'"anthropic_version"' not in body

    @override
    def refusal(self, plan: Plan) -> web.Response:
        status, kind = _STATUS[plan.error]
        message = "prompt is too long: 5000 tokens > 4096 maximum" if plan.error is ContextLengthExceeded else "no"
        return web.json_response(error_body(kind, message), status=status, headers=plan.retry_headers)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        self._block, self._by_tool = 0, asked.json
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": f"{self.model}-20260219",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        if plan.counts is not None:
            message["usage"] = {**_input(plan.counts), "output_tokens": min(plan.counts.tokens_out, 1)}
        yield event("message_start", message=message)
        yield event("ping")
        if plan.reasoning:
            yield event(
                "content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}
            )
            for thought in plan.reasoning:
                yield delta(0, "thinking", thinking=thought)
            yield delta(0, "signature", signature=sign_thought("".join(plan.reasoning)))
            yield event("content_block_stop", index=0)
            self._block = 1
        if plan.redacted:
            encrypted = {"type": "redacted_thinking", "data": REDACTED}
            yield event("content_block_start", index=self._block, content_block=encrypted)
            yield event("content_block_stop", index=self._block)
            self._block += 1
        block = {"type": "tool_use", "id": "toolu_0", "name": "answer", "input": {}} if self._by_tool else _TEXT
        yield event("content_block_start", index=self._block, content_block=block)

    @override
    def piece(self, text: str) -> bytes:
        if self._by_tool:
            return delta(self._block, "input_json", partial_json=text)
        return delta(self._block, "text", text=text)

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield event("content_block_stop", index=self._block)
        for number, call in enumerate(plan.calls, self._block + 1):
            yield from _call(number, call)
        reason = "tool_use" if self._by_tool and plan.finish == "stop" else _FINISH[plan.finish]
        usage: dict[str, Any] = {}
        if plan.counts is not None:
            counts = plan.counts
            details = {"thinking_tokens": counts.reasoning}
            usage["usage"] = {**_input(counts), "output_tokens": counts.tokens_out, "output_tokens_details": details}
        yield event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, **usage)
        yield event("message_stop")

    @override
    def error(self, plan: Plan) -> bytes:
        return event("error", error=error_body(_STATUS[plan.error][1])["error"])


class VertexClaudeServer(AnthropicServer):
    """Vertex AI: an access token; model and version stand in other places, and there is no list of models."""

    @override
    def authorized(self, request: web.Request) -> bool:
        return request.headers.get("authorization") == f"Bearer {TOKEN}" and "x-api-key" not in request.headers

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        return token(request)

    @override
    def place(self, request: web.Request) -> str | None:
        folder = f"/v1/projects/{PROJECT}/locations/{LOCATION}/publishers/anthropic/models/"
        if self.counts(request):
            return None
        model, _, verb = request.path_qs.removeprefix(folder).partition(":")
        if request.method != "POST" or not request.path_qs.startswith(folder) or verb != "streamRawPredict":
            raise Refused(_failed(404, "not_found_error"))
        return model

    @override
    def counts(self, request: web.Request) -> bool:
        return request.path.endswith("/publishers/anthropic/models/count-tokens:rawPredict")

    @override
    def versioned(self, request: web.Request, body: bytes) -> bool:
        return b'"anthropic_version":"vertex-2023-10-16"' in body


_TEXT = {"type": "text", "text": ""}


def _input(counts: Counts) -> dict[str, int]:
    """Theirs are apart: read from the cache, written to it, and the rest."""
    return {
        "input_tokens": counts.tokens_in - counts.cached - counts.written,
        "cache_creation_input_tokens": counts.written,
        "cache_read_input_tokens": counts.cached,
    }


def _call(number: int, call: PlannedCall) -> Iterable[bytes]:
    block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    yield event("content_block_start", index=number, content_block=block)
    yield delta(number, "input_json", partial_json="")
    for piece in call.arguments if call.arguments != ("{}",) else ():
        yield delta(number, "input_json", partial_json=piece)
    yield event("content_block_stop", index=number)


def _failed(status: int, kind: str, message: str = "no") -> web.Response:
    return web.json_response({"type": "error", "error": {"type": kind, "message": message}}, status=status)


def _asked(body: MessagesBody, model: str) -> Asked:
    choice = body.tool_choice
    by_tool = choice is not None and choice.name == "answer"
    shape = body.output_config.format if body.output_config else None
    form = body.tools[0].input_schema if by_tool else shape.schema if shape else None
    return Asked(
        model=model,
        system=body.system if isinstance(body.system, str) else "".join(part.text for part in body.system or ()),
        turns=tuple(turn for read in body.messages for turn in _turns(read)),
        tools=() if by_tool else tuple(_tool(tool) for tool in body.tools),
        tool_choice=None if choice is None or by_tool else choice.name or _CHOICE[choice.type],
        schema=None if form == {"type": "object"} else form,
        json=by_tool,
        sampling=Sampling(
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            max_tokens=body.max_tokens,
            stop=body.stop_sequences,
        ),
    )


def _tool(tool: WireTool) -> Tool:
    return Tool(tool.name, tool.description, tool.input_schema, strict=tool.strict)


_CHOICE = {"auto": "auto", "none": "none", "any": "required"}


def _turns(turn: WireTurn) -> Iterable[Message]:
    """Results of calls are turns of their own for us."""
    blocks = (Text(turn.content),) if isinstance(turn.content, str) else turn.content
    for block in blocks:
        if isinstance(block, ToolResult):
            parts = (Text(block.content),) if isinstance(block.content, str) else block.content
            content = tuple(_part(part) for part in parts)
            yield Message("tool", content, tool_call_id=block.tool_use_id, error=block.is_error)
    shown = tuple(_part(block) for block in blocks if isinstance(block, Text | Image | Thought | RedactedThought))
    calls = tuple(
        ToolCall(block.id, block.name, json.dumps(block.input)) for block in blocks if isinstance(block, ToolUse)
    )
    if shown or calls:
        yield Message(turn.role, shown, tool_calls=calls)


def _part(block: Text | Image | Thought | RedactedThought) -> Part:
    if isinstance(block, Text):
        return TextPart(block.text)
    if isinstance(block, Thought):
        return ReasoningPart(block.thinking, block.signature)
    if isinstance(block, RedactedThought):
        return ReasoningPart("", block.data)
    source = block.source
    if isinstance(source, Base64):
        return ImagePart(media_type=source.media_type, data=source.data)
    return ImagePart(url=source.url)
