"""Plan -> Ollama's API over a loopback socket, after its public reference ("Generate a chat message")."""

import base64
import json
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from aiohttp import web
from msgspec import Meta
from typing_extensions import override

from tests.fakes.loopback_server import STATUS, LoopbackServer, Refused
from tests.fakes.plan import Asked, Plan
from tests.fakes.strict import Strict
from tg_schema import ImagePart, Message, Sampling, TextPart, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import ContextLengthExceeded


class CalledFunction(Strict, frozen=True):
    name: str
    arguments: dict[str, Any]


class Call(Strict, frozen=True):
    function: CalledFunction


class Turn(Strict, frozen=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    thinking: str | None = None
    images: tuple[str, ...] = ()
    tool_calls: tuple[Call, ...] = ()
    tool_name: str | None = None


class Function(Strict, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]


class ToolEntry(Strict, frozen=True):
    type: Literal["function"]
    function: Function


class Options(Strict, frozen=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    num_predict: int | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    num_ctx: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None


class Chat(Strict, frozen=True):
    """The body of `POST /api/chat`."""

    model: str
    messages: tuple[Turn, ...]
    stream: bool = True
    tools: tuple[ToolEntry, ...] = ()
    format: Literal["json"] | dict[str, Any] | None = None
    options: Options = Options()
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: str | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 0


class OllamaServer(LoopbackServer):
    """`POST /api/chat`, `GET /api/tags`; no key, no keep-alives."""

    content_type: ClassVar[str] = "application/x-ndjson"
    keep_alive: ClassVar[bytes] = b""
    filler: ClassVar[bytes] = b"\n" * 4096

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        if request.method != "GET" or request.path != "/api/tags":
            return None
        details = {"format": "gguf", "family": "gemma", "parameter_size": "4.3B", "quantization_level": "Q4_K_M"}
        listed = [
            {"name": model.id, "model": model.id, "modified_at": "2025-10-03T23:34:03-07:00", "details": details}
            for model in plan.models
        ]
        return web.json_response({"models": listed})

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if request.method != "POST" or request.path_qs != "/api/chat":
            raise Refused(web.Response(status=404, text="404 page not found"))
        try:
            chat = msgspec.json.decode(body, type=Chat)
            for turn in chat.messages:
                for image in turn.images:
                    base64.b64decode(image, validate=True)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Refused(failed(400, str(error))) from None
        if chat.model != self.model:
            raise Refused(failed(404, f"model '{chat.model}' not found"))
        if not chat.stream:
            raise Refused(failed(400, "this server is only asked for streams"))
        return _asked(chat)

    @override
    def refusal(self, plan: Plan) -> web.Response:
        long = "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"
        return failed(STATUS[plan.error], long if plan.error is ContextLengthExceeded else "no", **plan.retry_headers)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        for thought in plan.reasoning:
            yield line(self.model, {"role": "assistant", "content": "", "thinking": thought})

    @override
    def piece(self, text: str) -> bytes:
        return line(self.model, {"role": "assistant", "content": text})

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        for call in plan.calls:
            function = {"name": call.name, "arguments": json.loads("".join(call.arguments))}
            yield line(self.model, {"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
        counts = plan.counts
        usage = {} if counts is None else {"prompt_eval_count": counts.tokens_in, "eval_count": counts.tokens_out}
        # A call of a tool has no reason of its own.
        reason = "stop" if plan.finish == "tool_calls" else plan.finish
        last = {"done": True, "done_reason": reason, "total_duration": 174560334, "load_duration": 101397084, **usage}
        yield line(self.model, {"role": "assistant", "content": ""}, **last)

    @override
    def error(self, plan: Plan) -> bytes:
        return json.dumps({"error": "an error was encountered while running the model"}).encode() + b"\n"


def line(model: str, message: dict[str, Any], **last: Any) -> bytes:
    """One line of an answer."""
    said = {"model": model, "created_at": "2025-10-17T23:14:07.414671Z", "message": message, "done": False, **last}
    return json.dumps(said, ensure_ascii=False).replace("\u2028", "\\u2028").encode() + b"\n"


def failed(status: int, message: str, **headers: str) -> web.Response:
    """A refusal as Ollama says it."""
    return web.json_response({"error": message}, status=status, headers=headers)


def _asked(chat: Chat) -> Asked:
    said = chat.options
    return Asked(
        model=chat.model,
        system="\n\n".join(turn.content for turn in chat.messages if turn.role == "system"),
        turns=tuple(_turn(turn) for turn in chat.messages if turn.role != "system"),
        tools=tuple(
            Tool(tool.function.name, tool.function.description, tool.function.parameters) for tool in chat.tools
        ),
        schema=chat.format if isinstance(chat.format, dict) else None,
        json=chat.format == "json",
        sampling=Sampling(
            temperature=said.temperature,
            top_p=said.top_p,
            top_k=said.top_k,
            max_tokens=said.num_predict,
            stop=said.stop,
            seed=said.seed,
            presence_penalty=said.presence_penalty,
            frequency_penalty=said.frequency_penalty,
            logprobs=chat.top_logprobs if chat.logprobs else None,
        ),
    )


def _turn(turn: Turn) -> Message:
    images = tuple(ImagePart(data=image) for image in turn.images)
    content: str | tuple[Part, ...]
    content = (TextPart(turn.content), *images) if images else turn.content
    if turn.thinking:
        content = (ReasoningPart(turn.thinking, "ollama"), TextPart(turn.content))
    calls = tuple(ToolCall("", call.function.name, json.dumps(call.function.arguments)) for call in turn.tool_calls)
    return Message(turn.role, content, tool_calls=calls, name=turn.tool_name)
