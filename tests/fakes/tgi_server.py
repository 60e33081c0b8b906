"""Plan -> the Messages API of text-generation-inference over a loopback socket, after its public documentation.

It is OpenAI's chat completions with differences: `model` names an adapter unless it is "tgi"; a schema is a grammar's
`value`; of a message with text and calls only the text is read; every delta has its role, and each piece of a call its
id; an answer has one call at most, whose finish reason is "stop"; what goes wrong with a stream, too many requests
among it, is an event after status 200.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
from aiohttp import web
from typing_extensions import override

from tests.fakes.loopback_server import Refused
from tests.fakes.openai_chat_server import OpenAiChatServer
from tests.fakes.openai_transcript import done
from tests.fakes.plan import Asked, Plan
from tg_schema import Message, TgError
from tg_schema.errors import BadRequest, ContextLengthExceeded, NotFound, ProviderAuth, RateLimited, Unavailable

_STATUS: dict[type[TgError], tuple[int, str]] = {
    BadRequest: (422, "template_error"),
    ContextLengthExceeded: (422, "validation"),
    ProviderAuth: (401, ""),
    NotFound: (404, ""),
    Unavailable: (500, "incomplete_generation"),
}
_EVENTS: dict[type[TgError], str] = {
    RateLimited: "Model is overloaded",
    Unavailable: "Request failed during generation: Server error: CUDA error",
}


class Grammar(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_object"):
    value: dict[str, Any]


class TgiServer(OpenAiChatServer):
    """No key, `POST /v1/chat/completions`, `GET /v1/models`."""

    unavailable: ClassVar[str] = "incomplete_generation"

    @override
    def authorized(self, request: web.Request) -> bool:
        return "authorization" not in request.headers

    @override
    def read(self, request: web.Request, body: bytes) -> Asked:
        try:
            chat = msgspec.json.decode(body, type=dict[str, Any])
            shape = chat.pop("response_format", None)
            grammar = None if shape is None else msgspec.convert(shape, Grammar)
        except msgspec.MsgspecError as error:
            raise Refused(failed(422, "validation", str(error))) from None
        if chat.pop("model", "tgi") != "tgi":
            raise Refused(failed(404, "validation", "there is no adapter of that name"))
        if grammar is not None and "tools" in chat:
            raise Refused(failed(422, "tool_error", "Grammar and tools are mutually exclusive"))
        for message in chat.get("messages", ()):
            if "content" in message:
                message.pop("tool_calls", None)
        asked = super().read(request, json.dumps({**chat, "model": self.model}).encode())
        return replace(
            asked, turns=_whole_turns(asked.turns), schema=None if grammar is None else grammar.value, strict=None
        )

    @override
    def refusal(self, plan: Plan) -> web.Response:
        if plan.error is RateLimited:
            return web.Response(content_type="text/event-stream", body=self.error(plan) + done())
        status, kind = _STATUS[plan.error]
        long = "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"
        message = long if plan.error is ContextLengthExceeded else "no"
        return failed(status, kind, message) if kind else web.Response(status=status)

    @override
    def opening(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        return ()

    @override
    def piece(self, text: str) -> bytes:
        return event([choice({"content": text})])

    @override
    def closing(self, plan: Plan, asked: Asked) -> Iterable[bytes]:
        for call in plan.calls:
            for index, piece in enumerate(call.arguments):
                function = {"name": None if index else call.name, "arguments": piece}
                yield event(
                    [choice({"tool_calls": [{"index": 0, "id": call.id, "type": "function", "function": function}]})]
                )
        yield event([choice({"content": ""}, "stop" if plan.finish == "tool_calls" else plan.finish)])
        if plan.counts is not None:
            counts = plan.counts
            total = counts.tokens_in + counts.tokens_out
            usage = {"prompt_tokens": counts.tokens_in, "completion_tokens": counts.tokens_out, "total_tokens": total}
            yield event([], usage)
        yield done()

    @override
    def error(self, plan: Plan) -> bytes:
        fault = {"error": {"message": _EVENTS[plan.error], "http_status_code": 422}}
        return b"data: " + json.dumps(fault).encode() + b"\n\n"


def _whole_turns(turns: tuple[Message, ...]) -> tuple[Message, ...]:
    """What an assistant says and what it calls right after that, as one turn."""
    whole: list[Message] = []
    for turn in turns:
        continued = turn.tool_calls and whole and whole[-1].role == "assistant" and not whole[-1].tool_calls
        whole.append(msgspec.structs.replace(turn, content=whole.pop().content) if continued else turn)
    return tuple(whole)


def choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """The one choice of an event."""
    return {"index": 0, "delta": {"role": "assistant", **delta}, "logprobs": None, "finish_reason": finish_reason}


def event(choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
    """One event of a stream."""
    chunk = {
        "object": "chat.completion.chunk",
        "id": "",
        "created": 1726656043,
        "model": "HuggingFaceH4/zephyr-7b-beta",
        "system_fingerprint": "3.3.6-native",
        "choices": choices,
        "usage": usage,
    }
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def failed(status: int, kind: str, message: str) -> web.Response:
    """A refusal as text-generation-inference says it."""
    return web.json_response({"error": message, "error_type": kind}, status=status)
