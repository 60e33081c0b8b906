"""Plan -> OpenAI's chat completions over a loopback socket, after the public API reference ("Chat", "Streaming")."""

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from aiohttp import web
from typing_extensions import override

from tests.fakes.loopback_server import LoopbackServer, Refused, read_image
from tests.fakes.openai_transcript import (
    ChatBody,
    Chosen,
    ChosenFrom,
    CompatibleBody,
    Image,
    Text,
    done,
    error_event,
    event,
    finish_event,
    first_event,
    refusal,
    usage_event,
)
from tests.fakes.openai_transcript import Message as ChatMessage
from tests.fakes.plan import Asked, Plan
from tg_schema import ImagePart, Message, Sampling, TextPart, TgError, Tool, ToolCall
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

_STATUS: dict[type[TgError], tuple[int, str | None, str]] = {
    BadRequest: (400, None, "invalid_request_error"),
    ContextLengthExceeded: (400, "context_length_exceeded", "invalid_request_error"),
    ProviderAuth: (401, "invalid_api_key", "invalid_request_error"),
    NotFound: (404, "model_not_found", "invalid_request_error"),
    RateLimited: (429, "rate_limit_exceeded", "requests"),
    Unavailable: (503, None, "server_error"),
}


class OpenAiChatServer(LoopbackServer):
    """OpenAI's own: Bearer key, `POST /v1/chat/completions`, `GET /v1/models`."""

    unavailable: ClassVar[str] = "server_error"
    request_header: ClassVar[str] = "x-request-id"
    key: ClassVar[str] = "sk-loopback"
    completions: ClassVar[str] = "/v1/chat/completions"
    listing: ClassVar[str] = "/v1/models"
    body: ClassVar[type[ChatBody]] = ChatBody

    @override
    def authorized(self, request: web.Request) -> bool:
        return super().authorized(request) and "api-key" not in request.headers

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        if request.method != "GET" or request.path_qs != self.listing:
            return None
        if not self.authorized(request):
            return _failed(401, "invalid_api_key")
        data = [{"id": model.id, "object": "model", "created": 1, "owned_by": "me"} for model in plan.models]
        return web.json_response({"object": "list", "data": data})

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if not self.authorized(request):
            raise Refused(_failed(401, "invalid_api_key"))
        if request.method != "POST" or request.path_qs != self.completions:
            raise Refused(_failed(404, None, f"Invalid URL ({request.method} {request.path_qs})"))
        if request.content_type != "application/json":
            raise Refused(_failed(400, None, "send application/json"))
        try:
            chat = self.body.checked(body)
        except msgspec.MsgspecError as error:
            raise Refused(_failed(400, None, str(error))) from None
        if chat.model != self.model:
            raise Refused(_failed(404, "model_not_found"))
        if not chat.stream or chat.stream_options is None or not chat.stream_options.include_usage:
            raise Refused(_failed(400, None, "this server is only asked for streams with usage"))
        return _asked(chat)

    @override
    def refusal(self, plan: Plan) -> web.Response:
        status, code, kind = _STATUS[plan.error]
        long = "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens."
        message = long if plan.error is ContextLengthExceeded else "no"
        return web.Response(
            status=status,
            headers=plan.retry_headers,
            content_type="application/json",
            body=refusal(message, code, kind),
        )

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield first_event(self.model)
        for thought in plan.reasoning:
            yield event(self.model, {"reasoning_content": thought})

    @override
    def piece(self, text: str) -> bytes:
        return event(self.model, {"content": text})

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        for index, call in enumerate(plan.calls):
            function: dict[str, Any] = {"name": call.name, "arguments": ""}
            started = {"index": index, "id": call.id, "type": "function", "function": function}
            yield event(self.model, {"tool_calls": [started]})
            for piece in call.arguments:
                yield event(self.model, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield finish_event(self.model, plan.finish)
        if plan.counts is not None:
            counts = plan.counts
            yield usage_event(
                self.model,
                counts.tokens_in,
                counts.tokens_out,
                cached=counts.cached,
                reasoning=counts.reasoning,
                written=counts.written,
            )
        yield done()

    @override
    def error(self, plan: Plan) -> bytes:
        _, code, kind = _STATUS[plan.error]
        return error_event(code, kind)


class AzureOpenAiServer(OpenAiChatServer):
    """A deployment of Azure OpenAI: key in `api-key`, the deployment in the path, `api-version` in the query."""

    request_header: ClassVar[str] = "apim-request-id"

    completions = "/openai/deployments/fake-model/chat/completions?api-version=2024-10-21"
    listing = "/openai/models?api-version=2024-10-21"

    @override
    def authorized(self, request: web.Request) -> bool:
        return request.headers.get("api-key") == self.key and "authorization" not in request.headers


class AzureAiServer(OpenAiChatServer):
    """Azure's serverless models: Bearer key, under `/openai/v1`."""

    request_header: ClassVar[str] = "apim-request-id"

    completions = "/openai/v1/chat/completions"
    listing = "/openai/v1/models"


class CompatibleServer(OpenAiChatServer):
    """A server at home: no key, and `top_k` beside OpenAI's fields."""

    body = CompatibleBody

    @override
    def authorized(self, request: web.Request) -> bool:
        return not {"authorization", "api-key"} & {name.lower() for name in request.headers}


class VllmServer(CompatibleServer):
    """A vLLM server: also `POST /tokenize`, beside `/v1`, which reads a conversation as the chat does."""

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if request.path_qs != "/tokenize":
            return super().read(request, body)
        asked = msgspec.json.decode(body, type=dict[str, Any])
        if not asked.pop("add_generation_prompt", None) or asked.pop("model", None) != self.model:
            raise Refused(_failed(400, None, "send a model, and messages before an answer"))
        chat = {"model": self.model, "stream": True, **asked}
        try:
            return _asked(self.body.checked(msgspec.json.encode(chat)))
        except msgspec.MsgspecError as error:
            raise Refused(_failed(400, None, str(error))) from None

    @override
    def whole(self, request: web.Request, plan: Plan, asked: Asked) -> web.Response | None:
        if request.path_qs != "/tokenize":
            return None
        count = plan.counts.tokens_in if plan.counts else 0
        return web.json_response({"count": count, "max_model_len": 4096, "tokens": list(range(count))})


def _failed(status: int, code: str | None, message: str = "no") -> web.Response:
    return web.Response(status=status, content_type="application/json", body=refusal(message, code))


def _asked(chat: ChatBody) -> Asked:
    leading = [message for message in chat.messages if message.role == "system"]
    shape = chat.response_format
    return Asked(
        model=chat.model,
        system="\n\n".join(str(message.content) for message in leading),
        turns=tuple(_turn(message) for message in chat.messages if message.role != "system"),
        tools=tuple(
            Tool(tool.function.name, tool.function.description, tool.function.parameters) for tool in chat.tools or ()
        ),
        tool_choice=_choice(chat.tool_choice),
        schema=shape.json_schema.schema if shape is not None and shape.json_schema is not None else None,
        strict=bool(shape and shape.json_schema and shape.json_schema.strict),
        json=shape is not None and shape.type == "json_object",
        sampling=Sampling(
            temperature=chat.temperature,
            top_p=chat.top_p,
            top_k=chat.top_k if isinstance(chat, CompatibleBody) else None,
            max_tokens=chat.max_tokens or chat.max_completion_tokens,
            stop=chat.stop or (),
            seed=chat.seed,
            presence_penalty=chat.presence_penalty,
            frequency_penalty=chat.frequency_penalty,
            logprobs=(chat.top_logprobs or 0) if chat.logprobs else None,
        ),
    )


def _choice(choice: str | Chosen | ChosenFrom | None) -> str | None:
    if isinstance(choice, ChosenFrom):
        return choice.allowed_tools.mode
    return choice.function.name if isinstance(choice, Chosen) else choice


def _turn(message: ChatMessage) -> Message:
    told = (Text(message.content),) if isinstance(message.content, str) and message.content else message.content or ()
    thought = message.reasoning_content
    parts = tuple(_part(part) for part in told)
    return Message(
        "user" if message.role == "developer" else message.role,
        parts if thought is None else (ReasoningPart(thought, "reasoning_content"), *parts),
        tool_calls=tuple(
            ToolCall(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
        ),
        tool_call_id=message.tool_call_id,
    )


def _part(part: Text | Image) -> TextPart | ImagePart:
    if isinstance(part, Text):
        return TextPart(part.text)
    return read_image(part.image_url.url)
