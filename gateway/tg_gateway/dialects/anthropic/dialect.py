"""Anthropic's Messages API over HTTP: what each path means, and how requests, answers and errors are encoded."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import (
    ASKING,
    EVENTS,
    Answer,
    Ask,
    Call,
    CompletionWriter,
    Description,
    Dialect,
    FoundModel,
    Mount,
    show_ignored,
)
from tg_gateway.dialects.anthropic.blocks import DIALECT
from tg_gateway.dialects.anthropic.body import MessageBody
from tg_gateway.dialects.anthropic.failures import MESSAGES_FIELDS, MessageFailure, make_headers, refuse
from tg_gateway.dialects.anthropic.request import read_request
from tg_gateway.dialects.anthropic.wire import AnswerMessage, Event, Model, ModelList, Ping, TokenCount
from tg_gateway.dialects.anthropic.writers import MessageForm, StreamWriter, encode_count, encode_message
from tg_schema import TextCompletionRequest, TgError, decode, encode
from tg_schema.errors import BadRequest, NotFound

_describe = partial(Description, group="Anthropic", failure=MessageFailure)
_HELLO: Final[Mapping[str, Any]] = {"model": "tinydemo", "messages": [{"role": "user", "content": "Hello"}]}


_VERSION: Final = "anthropic-version"
"""Anthropic's clients send it with every request; others that ask for the list of models do not."""


class AnthropicMessages(Dialect):
    """Messages, streamed and whole, their counts of tokens, and the models that can be asked."""

    descriptions: ClassVar[Mapping[str, Description]] = {
        "message": _describe(
            summary="Continue a conversation",
            body=MessageBody,
            required=("messages", "max_tokens"),
            answer=AnswerMessage,
            events=EVENTS,
            event=(Event, Ping, MessageFailure),
            raises=ASKING,
            examples={
                "whole": {**_HELLO, "max_tokens": 16},
                "streamed": {**_HELLO, "max_tokens": 64, "stream": True},
            },
        ),
        "count": _describe(
            summary="Count the tokens of a conversation",
            body=MessageBody,
            required=("messages",),
            answer=TokenCount,
            raises=ASKING,
            examples={"count": _HELLO},
        ),
        "models": _describe(summary="List the models", answer=ModelList),
        "model": _describe(summary="Show a model", answer=Model, path={"model": "tinydemo"}, raises=(NotFound,)),
        "probe": _describe(summary="Tell whether anybody is there"),
    }

    @override
    def parse(self, call: Call) -> Ask | Answer:
        match call.operation:
            case "message":
                return _ask_message(call)
            case "count":
                return _ask_count(call)
            case "models":
                models = tuple(Model(name, name) for name in call.catalogue.models())
                first, last = (models[0].id, models[-1].id) if models else (None, None)
                return _answer(call, ModelList(models, first, last))
            case "model":
                return _answer(call, _find_model(call))
            case _:
                return Answer(b"", headers=make_headers(call.request_id))

    @override
    def restore(self, form: bytes) -> StreamWriter:
        of = decode(MessageForm, form)
        return StreamWriter(of.model, of.request_id, of.name)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, call.request_id)


def _ask_message(call: Call) -> Ask:
    body = decode(MessageBody, call.body)
    if body.max_tokens is None:
        raise BadRequest("max_tokens is missing: say how many tokens the answer may have")
    found, request, headers = _read(call, body)
    model = found.model or body.model or ""
    whole = CompletionWriter(partial(encode_message, model=model))
    writer = StreamWriter(model, call.request_id) if body.stream else whole
    return Ask(found.route, request, writer, bool(body.stream), fields=MESSAGES_FIELDS, headers=headers)


def _ask_count(call: Call) -> Ask:
    found, request, headers = _read(call, decode(MessageBody, call.body))
    request = msgspec.structs.replace(request, operation="count-tokens", streaming=False)
    writer = CompletionWriter(encode_count)
    return Ask(found.route, request, writer, streaming=False, fields=MESSAGES_FIELDS, headers=headers)


def _read(call: Call, body: MessageBody) -> tuple[FoundModel, TextCompletionRequest, dict[str, str]]:
    """The model that a body is for, the request, and the headers of its answer."""
    found = call.catalogue.find_model(body.model)
    call.route = found.route
    request, ignored = read_request(body, call.body, call.headers.get("anthropic-beta", ""), found)
    return found, request, make_headers(call.request_id) | show_ignored(DIALECT, ignored)


def _find_model(call: Call) -> Model:
    name = call.path["model"]
    if name not in call.catalogue.models():
        raise NotFound(f"no live processor serves a model {name[:64]!r}; GET /v1/models lists those that can be asked")
    return Model(name, name)


def _answer(call: Call, body: msgspec.Struct) -> Answer:
    return Answer(encode(body), headers=make_headers(call.request_id))


ANTHROPIC: Final = AnthropicMessages()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/messages", ANTHROPIC, "message", large=True),
    Mount("POST", "/v1/messages/count_tokens", ANTHROPIC, "count", large=True),
    Mount("GET", "/v1/models", ANTHROPIC, "models", header=_VERSION),
    Mount("GET", "/v1/models/{model}", ANTHROPIC, "model", header=_VERSION),
    # Claude Code asks without a key whether anybody is there.
    Mount("HEAD", "/", ANTHROPIC, "probe", keyless=True),
)
"""Where Anthropic's clients find us."""
