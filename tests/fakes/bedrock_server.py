"""Plan -> Bedrock's Converse API over a loopback socket, after the "Amazon Bedrock API reference" (ConverseStream).

Frames are those of "Event stream encoding" in the AWS documentation: two lengths and their CRC-32, headers, payload,
and the CRC-32 of all that.
"""

import base64
import json
import struct
from binascii import crc32
from collections.abc import Iterable
from typing import Any, ClassVar
from urllib.parse import unquote

import msgspec
from aiohttp import web
from typing_extensions import override

from tests.fakes.anthropic_transcript import sign_thought
from tests.fakes.bedrock_body import REDACTED, Block, Converse, ToolChoice, Turn
from tests.fakes.loopback_server import LoopbackServer, Refused
from tests.fakes.plan import Asked, Plan
from tg_schema import ImagePart, Message, Sampling, TextPart, TgError, Tool, ToolCall
from tg_schema.conversation import Part, ReasoningPart
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

_REFUSALS: dict[type[TgError], tuple[int, str]] = {
    BadRequest: (400, "ValidationException"),
    ContextLengthExceeded: (400, "ValidationException"),
    ProviderAuth: (403, "AccessDeniedException"),
    NotFound: (404, "ResourceNotFoundException"),
    RateLimited: (429, "ThrottlingException"),
    Unavailable: (503, "ServiceUnavailableException"),
}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "guardrail_intervened",
}


class BedrockServer(LoopbackServer):
    """AWS signature (its form alone), `POST /model/{id}/converse-stream`, `GET /foundation-models`."""

    unavailable: ClassVar[str] = "ServiceUnavailableException"
    request_header: ClassVar[str] = "x-amzn-RequestId"

    content_type: ClassVar[str] = "application/vnd.amazon.eventstream"
    keep_alive: ClassVar[bytes] = b""
    filler: ClassVar[bytes] = b""
    key: ClassVar[str] = "AKIDLOOPBACK"

    @override
    def authorized(self, request: web.Request) -> bool:
        """Whether the request has a signature of the right key, date and service."""
        said = request.headers.get("authorization", "")
        return said.startswith(f"AWS4-HMAC-SHA256 Credential={self.key}/") and "/bedrock/aws4_request" in said

    @override
    def models(self, request: web.Request, plan: Plan) -> web.Response | None:
        if request.method != "GET" or request.path != "/foundation-models":
            return None
        if not self.authorized(request) or dict(request.query) != {"byOutputModality": "TEXT"}:
            return failed(400, "ValidationException")
        arn = "arn:aws:bedrock:eu-west-1::foundation-model/"
        listed = [
            {"modelArn": arn + model.id, "modelId": model.id, "providerName": "me", "responseStreamingSupported": True}
            for model in plan.models
        ]
        silent = {"modelArn": arn + "m", "modelId": "m", "responseStreamingSupported": False}
        return web.json_response({"modelSummaries": [*listed, silent]})

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        if not self.authorized(request):
            raise Refused(failed(403, "UnrecognizedClientException"))
        model, _, rest = request.path.removeprefix("/model/").rpartition("/")
        if request.method != "POST" or rest != "converse-stream":
            raise Refused(failed(404, "UnknownOperationException"))
        if unquote(model) != self.model:
            raise Refused(failed(404, "ResourceNotFoundException"))
        try:
            converse = msgspec.json.decode(body, type=Converse)
            converse.check()
        except msgspec.MsgspecError as error:
            raise Refused(failed(400, "ValidationException", str(error))) from None
        return _asked(self.model, converse)

    @override
    def refusal(self, plan: Plan) -> web.Response:
        status, code = _REFUSALS[plan.error]
        message = "Input is too long for requested model." if plan.error is ContextLengthExceeded else "no"
        return failed(status, code, message, **plan.retry_headers)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield event("messageStart", {"role": "assistant"})
        for thought in plan.reasoning:
            yield _delta(0, {"reasoningContent": {"text": thought}})
        if plan.reasoning:
            yield _delta(0, {"reasoningContent": {"signature": sign_thought("".join(plan.reasoning))}})
            yield event("contentBlockStop", {"contentBlockIndex": 0})
        if plan.redacted:
            yield _delta(0, {"reasoningContent": {"redactedContent": REDACTED}})
            yield event("contentBlockStop", {"contentBlockIndex": 0})

    @override
    def piece(self, text: str) -> bytes:
        return _delta(1, {"text": text})

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        yield event("contentBlockStop", {"contentBlockIndex": 1})
        for index, call in enumerate(plan.calls, 2):
            start = {"toolUse": {"toolUseId": call.id, "name": call.name}}
            yield event("contentBlockStart", {"start": start, "contentBlockIndex": index})
            for piece in call.arguments:
                yield _delta(index, {"toolUse": {"input": piece}})
            yield event("contentBlockStop", {"contentBlockIndex": index})
        yield event("messageStop", {"stopReason": _STOP_REASONS[plan.finish]})
        if plan.counts is not None:
            counts = plan.counts
            usage = {
                "inputTokens": counts.tokens_in - counts.cached - counts.written,
                "outputTokens": counts.tokens_out,
                "totalTokens": counts.tokens_in + counts.tokens_out,
                "cacheReadInputTokens": counts.cached,
                "cacheWriteInputTokens": counts.written,
            }
            yield event("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})

    @override
    def error(self, plan: Plan) -> bytes:
        _, code = _REFUSALS[plan.error]
        return frame({":message-type": "exception", ":exception-type": code[0].lower() + code[1:]}, {"message": "no"})


def event(kind: str, payload: dict[str, Any]) -> bytes:
    """One event of a stream; `p` is the padding that Bedrock adds against guesses by length."""
    return frame({":message-type": "event", ":event-type": kind}, {**payload, "p": "abcdefgh"})


def frame(headers: dict[str, str], payload: dict[str, Any]) -> bytes:
    """One frame with an object in it."""
    return frame_of(headers, json.dumps(payload, ensure_ascii=False).encode())


def frame_of(headers: dict[str, str], body: bytes) -> bytes:
    """One frame, with its checksums."""
    told = {**headers, ":content-type": "application/json"}
    return seal(b"".join(_header(name, value) for name, value in told.items()), body)


def seal(head: bytes, body: bytes) -> bytes:
    """One frame with these bytes as its headers, and its checksums."""
    prelude = struct.pack("!II", 16 + len(head) + len(body), len(head))
    data = prelude + struct.pack("!I", crc32(prelude)) + head + body
    return data + struct.pack("!I", crc32(data))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return event("contentBlockDelta", {"delta": delta, "contentBlockIndex": index})


def failed(status: int, code: str, message: str = "no", **headers: str) -> web.Response:
    """A refusal as AWS says it."""
    return web.json_response({"message": message}, status=status, headers={"x-amzn-ErrorType": f"{code}:", **headers})


def _asked(model: str, converse: Converse) -> Asked:
    told = converse.toolConfig.tools if converse.toolConfig else ()
    tools = [entry.toolSpec for entry in told if entry.toolSpec]
    form = converse.outputConfig.textFormat if converse.outputConfig else None
    shape = form.structure.jsonSchema.schema if form else None
    said = converse.inferenceConfig
    return Asked(
        model=model,
        system="\n\n".join(block.text for block in converse.system if block.text),
        turns=tuple(message for turn in converse.messages for message in _turns(turn)),
        tools=tuple(
            Tool(tool.name, tool.description or "", tool.inputSchema.json, strict=tool.strict or False)
            for tool in tools
        ),
        tool_choice=_choice(converse.toolConfig.toolChoice if converse.toolConfig else None),
        schema=None if shape is None else json.loads(shape),
        sampling=Sampling(
            temperature=said.temperature,
            top_p=said.topP,
            max_tokens=said.maxTokens,
            stop=said.stopSequences or (),
        ),
    )


def _choice(choice: ToolChoice | None) -> str | None:
    if choice is None:
        return None
    if choice.tool is not None:
        return choice.tool.name
    return "required" if choice.any is not None else "auto"


def _turns(turn: Turn) -> Iterable[Message]:
    """The turns in one message: each tool's result is one of ours."""
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in turn.content:
        if block.toolResult is not None:
            result = block.toolResult
            text = "".join(inner.text or "" for inner in result.content)
            yield Message("tool", text, tool_call_id=result.toolUseId, error=result.status == "error")
        elif block.toolUse is not None:
            calls.append(ToolCall(block.toolUse.toolUseId, block.toolUse.name, json.dumps(block.toolUse.input)))
        elif block.cachePoint is None:
            parts.append(_part(block))
    if parts or calls:
        yield Message(turn.role, tuple(parts), tool_calls=tuple(calls))


def _part(block: Block) -> Part:
    thought = block.reasoningContent
    if thought is not None:
        text = thought.reasoningText
        return ReasoningPart(text.text, text.signature) if text else ReasoningPart("", thought.redactedContent)
    if block.image is None:
        return TextPart(block.text or "")
    base64.b64decode(block.image.source.bytes, validate=True)
    return ImagePart(media_type=f"image/{block.image.format}", data=block.image.source.bytes)


BedrockServer.filler = event("messageStart", {"role": "assistant"}) * 64
