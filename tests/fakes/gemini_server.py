"""Plan -> Gemini's REST API over a loopback socket, as Google AI Studio or Vertex AI, after its public reference."""

import json
from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec
from aiohttp import web
from typing_extensions import override

from tests.fakes.gemini_transcript import (
    Content,
    CountBody,
    GenerateBody,
    Result,
    candidate,
    error_body,
    response,
    sign_call,
)
from tests.fakes.gemini_transcript import Part as WirePart
from tests.fakes.google_account import LOCATION, PROJECT, TOKEN, token
from tests.fakes.loopback_server import LoopbackServer, Refused
from tests.fakes.plan import Asked, Plan
from tg_schema import ImagePart, Message, Sampling, TextPart, TgError, Tool, ToolCall
from tg_schema.conversation import Part
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

_STATUS: dict[type[TgError], tuple[int, str]] = {
    BadRequest: (400, "INVALID_ARGUMENT"),
    ContextLengthExceeded: (400, "INVALID_ARGUMENT"),
    ProviderAuth: (401, "UNAUTHENTICATED"),
    NotFound: (404, "NOT_FOUND"),
    RateLimited: (429, "RESOURCE_EXHAUSTED"),
    Unavailable: (503, "UNAVAILABLE"),
}
_FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "tool_calls": "STOP", "content_filter": "SAFETY"}
_CHOICE = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}


class GeminiServer(LoopbackServer):
    """Google AI Studio: a key, and models without a project."""

    unavailable: ClassVar[str] = "UNAVAILABLE"
    key: ClassVar[str] = "AIza-loopback"
    place: ClassVar[str] = "/v1beta/models"
    listing: ClassVar[str] = "/v1beta/models"

    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[str, Any] = {}

    def unauthorized(self, request: web.Request) -> web.Response | None:
        """The refusal of a request without the key."""
        if request.headers.get("x-goog-api-key") == self.key and "authorization" not in request.headers:
            return None
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
        return web.json_response(error_body(400, "INVALID_ARGUMENT", reason), status=400)

    def listed(self, plan: Plan) -> dict[str, Any]:
        """The list of models."""
        return {"models": [{"name": f"models/{model.id}", "version": "001"} for model in plan.models]}

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        if request.method != "GET" or request.path != self.listing:
            return None
        return self.unauthorized(request) or web.json_response(self.listed(plan))

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if (refused := self.unauthorized(request)) is not None:
            raise Refused(refused)
        path = f"{self.place}/{self.model}"
        if request.method != "POST" or request.path_qs not in {
            f"{path}:streamGenerateContent?alt=sse",
            f"{path}:countTokens",
        }:
            raise Refused(web.json_response(error_body(404, "NOT_FOUND"), status=404))
        try:
            asked = self.counted(body) if request.path.endswith(":countTokens") else GenerateBody.checked(body)
            return _asked(asked, self.model)
        except msgspec.MsgspecError as error:
            said = error_body(400, "INVALID_ARGUMENT", {"@type": "x", "detail": str(error)})
            raise Refused(web.json_response(said, status=400)) from None

    def counted(self, body: bytes) -> GenerateBody:
        """What a request for a count of tokens has."""
        counted = msgspec.json.decode(body, type=CountBody).generate_content_request
        if counted.pop("model") != f"models/{self.model}":
            raise msgspec.ValidationError("models in the two places differ")
        return GenerateBody.checked(msgspec.json.encode(counted))

    @override
    def whole(self, request: web.Request, plan: Plan, asked: Asked) -> web.Response | None:
        if not request.path.endswith(":countTokens"):
            return None
        return web.json_response({"totalTokens": plan.counts.tokens_in if plan.counts else 0})

    @override
    def refusal(self, plan: Plan) -> web.Response:
        code, status = _STATUS[plan.error]
        wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{plan.retry_after or 0:g}s"}
        details = () if plan.retry_after is None else (wait,)
        long = "The input token count (5000) exceeds the maximum number of tokens allowed (4096)."
        message = long if plan.error is ContextLengthExceeded else "no"
        return web.json_response(error_body(code, status, *details, message=message), status=code)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        counts = plan.counts
        self._usage = {"trafficType": "ON_DEMAND"}
        if counts is not None:
            self._usage |= {"promptTokenCount": counts.tokens_in, "cachedContentTokenCount": counts.cached}
        for thought in plan.reasoning:
            yield candidate(self.model, {"text": thought, "thought": True}, usageMetadata=self._usage)

    @override
    def piece(self, text: str) -> bytes:
        return candidate(self.model, {"text": text}, usageMetadata=self._usage)

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        for call in plan.calls:
            wire = {"name": call.name, "args": json.loads("".join(call.arguments)), "id": call.id}
            yield candidate(
                self.model, {"functionCall": wire, "thoughtSignature": sign_call(call.name)}, usageMetadata=self._usage
            )
        usage = dict(self._usage)
        if plan.counts is not None:
            usage["candidatesTokenCount"] = plan.counts.tokens_out - plan.counts.reasoning
            usage["thoughtsTokenCount"] = plan.counts.reasoning
        yield candidate(self.model, {"text": ""}, finish=_FINISH[plan.finish], usageMetadata=usage)

    @override
    def error(self, plan: Plan) -> bytes:
        return response(**error_body(*_STATUS[plan.error]))


class VertexGeminiServer(GeminiServer):
    """Vertex AI: an access token, and models within a project and a location."""

    place = f"/v1beta1/projects/{PROJECT}/locations/{LOCATION}/publishers/google/models"
    listing = "/v1beta1/publishers/google/models"

    @override
    def unauthorized(self, request: web.Request) -> web.Response | None:
        if request.headers.get("authorization") == f"Bearer {TOKEN}" and "x-goog-api-key" not in request.headers:
            return None
        return web.json_response(error_body(401, "UNAUTHENTICATED"), status=401)

    @override
    def counted(self, body: bytes) -> GenerateBody:
        read = GenerateBody.checked(body)
        if read.tool_config is not None:
            raise msgspec.ValidationError('Unknown name "toolConfig"')
        return read

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        return token(request) or super().models(request, plan)

    @override
    def listed(self, plan: Plan) -> dict[str, Any]:
        return {"publisherModels": [{"name": f"publishers/google/models/{model.id}"} for model in plan.models]}


def _asked(body: GenerateBody, model: str) -> Asked:
    config = body.generation_config
    calling = body.tool_config.function_calling_config if body.tool_config else None
    return Asked(
        model=model,
        system="".join(part.text or "" for part in body.system_instruction.parts) if body.system_instruction else "",
        turns=tuple(turn for content in body.contents for turn in _turns(content)),
        tools=tuple(
            Tool(tool.name, tool.description, tool.parameters_json_schema or {})
            for tools in body.tools
            for tool in tools.function_declarations
        ),
        tool_choice=next(iter(calling.allowed_function_names), _CHOICE[calling.mode]) if calling else None,
        schema=config.response_json_schema,
        json=config.response_mime_type == "application/json" and config.response_json_schema is None,
        sampling=Sampling(
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
            max_tokens=config.max_output_tokens,
            stop=config.stop_sequences,
            seed=config.seed,
            presence_penalty=config.presence_penalty,
            frequency_penalty=config.frequency_penalty,
            logprobs=(config.logprobs or 0) if config.response_logprobs else None,
        ),
    )


def _turns(content: Content) -> Iterable[Message]:
    """Results of calls are turns of their own for us."""
    results = [part.function_response for part in content.parts if part.function_response]
    yield from (_answered(result) for result in results)
    shown = tuple(part for part in map(_part, content.parts) if part is not None)
    calls = tuple(
        ToolCall(
            part.function_call.id or "",
            part.function_call.name,
            json.dumps(part.function_call.args),
            part.thought_signature,
        )
        for part in content.parts
        if part.function_call
    )
    if shown or calls:
        yield Message("user" if content.role == "user" else "assistant", shown, tool_calls=calls)


def _answered(result: Result) -> Message:
    (said,) = result.response.items()
    return Message("tool", said[1], tool_call_id=result.id, name=result.name, error=said[0] == "error")


def _part(part: WirePart) -> Part | None:
    if part.inline_data:
        return ImagePart(media_type=part.inline_data.mime_type, data=part.inline_data.data)
    if part.file_data:
        return ImagePart(url=part.file_data.file_uri)
    return TextPart(part.text) if part.text else None
