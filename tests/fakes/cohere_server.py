"""Plan -> Cohere's chat over a loopback socket, after its public API reference ("Chat", v2, "Streaming")."""

import json
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from aiohttp import web
from msgspec import Meta
from typing_extensions import override

from tests.fakes.loopback_server import STATUS, LoopbackServer, Refused, read_image
from tests.fakes.openai_transcript import Call, Image, Text
from tests.fakes.plan import Asked, Plan
from tests.fakes.strict import Strict
from tg_schema import Message, Sampling, TextPart, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import ContextLengthExceeded

_FINISH = {"stop": "COMPLETE", "length": "MAX_TOKENS", "tool_calls": "TOOL_CALL"}


class System(Strict, frozen=True, tag_field="role", tag="system"):
    content: str


class User(Strict, frozen=True, tag_field="role", tag="user"):
    content: str | tuple[Text | Image, ...]


class AssistantPiece(Strict, frozen=True):
    type: Literal["text", "thinking"]
    text: str | None = None
    thinking: str | None = None


class Assistant(Strict, frozen=True, tag_field="role", tag="assistant"):
    content: str | tuple[AssistantPiece, ...] | None = None
    tool_plan: str | None = None
    tool_calls: tuple[Call, ...] = ()


class Result(Strict, frozen=True, tag_field="role", tag="tool"):
    tool_call_id: str
    content: str


class Function(Strict, frozen=True):
    name: str
    parameters: dict[str, Any]
    description: str = ""


class ToolEntry(Strict, frozen=True):
    type: Literal["function"]
    function: Function


class ResponseFormat(Strict, frozen=True):
    type: Literal["text", "json_object"]
    json_schema: dict[str, Any] | None = None


class Thinking(Strict, frozen=True):
    type: Literal["enabled", "disabled"]
    token_budget: int | None = None


class Chat(Strict, frozen=True):
    """The body of `POST /v2/chat`."""

    model: str
    messages: Annotated[tuple[System | User | Assistant | Result, ...], Meta(min_length=1)]
    stream: bool
    tools: Annotated[tuple[ToolEntry, ...], Meta(min_length=1)] | None = None
    tool_choice: Literal["REQUIRED", "NONE"] | None = None
    response_format: ResponseFormat | None = None
    strict_tools: bool = False
    priority: Annotated[int, Meta(ge=0, le=999)] | None = None
    thinking: Thinking | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    p: Annotated[float, Meta(ge=0.01, le=0.99)] | None = None
    k: Annotated[int, Meta(ge=0, le=500)] | None = None
    max_tokens: int | None = None
    stop_sequences: Annotated[tuple[str, ...], Meta(min_length=1, max_length=5)] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=0, le=1)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=0, le=1)] | None = None

    def check(self) -> None:
        """What the reference says beyond the shapes."""
        called = {call.id for turn in self.messages if isinstance(turn, Assistant) for call in turn.tool_calls}
        for turn in self.messages:
            if isinstance(turn, Result) and turn.tool_call_id not in called:
                raise msgspec.ValidationError("tool call id not found in previous tool calls")
            if isinstance(turn, Assistant) and not turn.content and not turn.tool_calls:
                raise msgspec.ValidationError("an assistant's message must have content or tool calls")
        if self.tool_choice is not None and not self.tools:
            raise msgspec.ValidationError("tool_choice can only be specified with tools")


class CohereServer(LoopbackServer):
    """Bearer key, `POST /v2/chat`, `GET /v1/models`."""

    key: ClassVar[str] = "co-loopback"

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        if request.method != "GET" or request.path != "/v1/models":
            return None
        if not self.authorized(request) or request.query.get("endpoint") != "chat":
            return failed(401, "invalid api token")
        listed = [{"name": model.id, "endpoints": ["chat"], "finetuned": False} for model in plan.models]
        return web.json_response({"models": listed, "next_page_token": ""})

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if not self.authorized(request):
            raise Refused(failed(401, "invalid api token"))
        if request.method != "POST" or request.path_qs != "/v2/chat":
            raise Refused(failed(404, "not found"))
        try:
            chat = msgspec.json.decode(body, type=Chat)
            chat.check()
        except msgspec.MsgspecError as error:
            raise Refused(failed(400, str(error))) from None
        if chat.model != self.model:
            raise Refused(failed(404, f"model '{chat.model}' not found"))
        if not chat.stream:
            raise Refused(failed(400, "this server is only asked for streams"))
        return _asked(chat)

    @override
    def refusal(self, plan: Plan) -> web.Response:
        long = "too many tokens: total number of tokens in the prompt cannot exceed 4096 - received 5000."
        return failed(STATUS[plan.error], long if plan.error is ContextLengthExceeded else "no", **plan.retry_headers)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        empty: dict[str, Any] = {"content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        yield event("message-start", {"message": {"role": "assistant", **empty}}, id="29f14a5a-11de-4cae-9800")
        if plan.reasoning:
            yield _content("content-start", 0, {"type": "thinking", "thinking": ""})
            for thought in plan.reasoning:
                yield _content("content-delta", 0, {"thinking": thought})
            yield event("content-end", None, index=0)
        yield _content("content-start", 1, {"type": "text", "text": ""})

    @override
    def piece(self, text: str) -> bytes:
        return _content("content-delta", 1, {"text": text})

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield event("content-end", None, index=1)
        for index, call in enumerate(plan.calls):
            start = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
            yield _call("tool-call-start", index, start)
            for piece in call.arguments:
                yield _call("tool-call-delta", index, {"function": {"arguments": piece}})
            yield event("tool-call-end", None, index=index)
        end: dict[str, Any] = {"finish_reason": _FINISH[plan.finish]}
        if plan.counts is not None:
            counts = plan.counts
            end["usage"] = {
                "billed_units": {"input_tokens": counts.tokens_in + 100, "output_tokens": counts.tokens_out + 100},
                "tokens": {"input_tokens": _number(counts.tokens_in), "output_tokens": counts.tokens_out},
                "cached_tokens": counts.cached,
            }
        yield event("message-end", end)

    @override
    def error(self, plan: Plan) -> bytes:
        return event("message-end", {"finish_reason": "ERROR", "error": "no"})


def event(kind: str, delta: dict[str, Any] | None, **more: Any) -> bytes:
    """One event of a stream; Cohere names it twice."""
    said = {"type": kind, **more, **({} if delta is None else {"delta": delta})}
    return f"event: {kind}\ndata: {json.dumps(said, ensure_ascii=False)}\n\n".encode()


def _content(kind: str, index: int, content: dict[str, Any]) -> bytes:
    return event(kind, {"message": {"content": content}}, index=index)


def _call(kind: str, index: int, call: dict[str, Any]) -> bytes:
    return event(kind, {"message": {"tool_calls": call}}, index=index)


def failed(status: int, message: str, **headers: str) -> web.Response:
    """A refusal as Cohere says it."""
    return web.json_response({"id": "id", "message": message}, status=status, headers=headers)


def _asked(chat: Chat) -> Asked:
    tools = tuple(
        Tool(tool.function.name, tool.function.description, tool.function.parameters) for tool in chat.tools or ()
    )
    shape = chat.response_format
    schema = shape.json_schema if shape is not None else None
    return Asked(
        model=chat.model,
        system="\n\n".join(turn.content for turn in chat.messages if isinstance(turn, System)),
        turns=tuple(_turn(turn) for turn in chat.messages if not isinstance(turn, System)),
        tools=tools,
        tool_choice=_choice(chat.tool_choice, tools),
        schema=schema,
        json=shape is not None and schema is None and shape.type == "json_object",
        sampling=Sampling(
            temperature=chat.temperature,
            top_p=chat.p,
            top_k=chat.k,
            max_tokens=chat.max_tokens,
            stop=chat.stop_sequences or (),
            seed=chat.seed,
            presence_penalty=chat.presence_penalty,
            frequency_penalty=chat.frequency_penalty,
        ),
    )


def _choice(choice: str | None, tools: tuple[Tool, ...]) -> str | None:
    """In our words: where a tool must be called and there is a single one, that one must."""
    if choice is None:
        return None
    return tools[0].name if choice == "REQUIRED" and len(tools) == 1 else choice.lower()


def _turn(turn: User | Assistant | Result) -> Message:
    if isinstance(turn, Result):
        return Message("tool", turn.content, tool_call_id=turn.tool_call_id)
    if isinstance(turn, Assistant):
        calls = tuple(ToolCall(call.id, call.function.name, call.function.arguments) for call in turn.tool_calls)
        said = turn.content if isinstance(turn.content, tuple) else ()
        parts = [ReasoningPart(piece.thinking, "cohere") for piece in said if piece.thinking]
        told = turn.content if isinstance(turn.content, str) else "".join(piece.text or "" for piece in said)
        text = turn.tool_plan or told
        return Message("assistant", (*parts, *((TextPart(text),) if text else ())), tool_calls=calls)
    content = turn.content
    return Message("user", content if isinstance(content, str) else tuple(_part(block) for block in content))


def _part(block: Text | Image) -> Part:
    if isinstance(block, Text):
        return TextPart(block.text)
    return read_image(block.image_url.url)


def _number(count: int) -> float:
    """Counts come with a point; a lie of 400 digits does not."""
    return float(count) if count < 2**53 else count
