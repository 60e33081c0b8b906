"""Ollama's protocol over HTTP: what a path means, and how it is asked, answered and refused."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Answer, Ask, Batch, Call, CompletionWriter, Dialect, FoundModel, Mount, show_ignored
from tg_gateway.dialects.ollama.answer_shape import LOADED, UNLOADED, AnswerShape, ChatShape, GenerateShape
from tg_gateway.dialects.ollama.answer_writers import AnswerLineWriter, encode_answer, encode_loaded
from tg_gateway.dialects.ollama.bodies import ChatBody, EmbedBody, EmbedOneBody, GenerateBody, ShowBody
from tg_gateway.dialects.ollama.descriptions import OLLAMA_DESCRIPTIONS
from tg_gateway.dialects.ollama.failures import OLLAMA_FIELDS, encode_failure, refuse_absent
from tg_gateway.dialects.ollama.model_choice import find_model
from tg_gateway.dialects.ollama.model_list import (
    encode_running,
    encode_shown,
    encode_tags,
    encode_version,
)
from tg_gateway.dialects.ollama.request import list_ignored, read_chat, read_generate
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_gateway.dialects.ollama.vectors import NOTHING, EmbedOneWriter, EmbedWriter, read_embed
from tg_schema import TextCompletionRequest, TgError, decode

DIALECT: Final = "ollama"
"""The name of this wire format in the log."""
_NO_TIME: Final = re.compile(r"0+(\.0*)?[a-zµ]*")
"""A `keep_alive` of 0: a number of seconds, or a duration as text."""


class _Kept(msgspec.Struct, frozen=True):
    keep_alive: Any = None


class Ollama(Dialect):
    """Chats, texts, vectors and lists of models, as the `ollama` packages ask for them."""

    descriptions = OLLAMA_DESCRIPTIONS

    @override
    def parse(self, call: Call) -> Ask | Answer:
        parse = _PARSERS.get(call.operation)
        return refuse_absent(call.operation) if parse is None else parse(call)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return Answer(encode_failure(error), status)


def _parse_text(call: Call) -> Ask | Answer:
    """A chat, or a prompt; without either, the model is loaded."""
    watch = Stopwatch()
    kind: type[ChatBody | GenerateBody] = ChatBody if call.operation == "chat" else GenerateBody
    body = decode(kind, call.body)
    found = find_model(call, body.model)
    shape = (ChatShape if isinstance(body, ChatBody) else GenerateShape)(body.model or "", own=found.model)
    ignored = _show_ignored(call, kind)
    if not (body.messages if isinstance(body, ChatBody) else body.prompt or body.images or body.suffix):
        return _load(call, found, shape, ignored)
    request = read_chat(body, found) if isinstance(body, ChatBody) else read_generate(body, found)
    streaming = bool(request.streaming)
    whole = CompletionWriter(partial(encode_answer, shape=shape, watch=watch), ignored)
    writer = AnswerLineWriter(shape, watch, ignored) if streaming else whole
    return Ask(found.route, request, writer, streaming, fields=OLLAMA_FIELDS)


def _load(call: Call, found: FoundModel, shape: AnswerShape, ignored: dict[str, str]) -> Ask | Answer:
    """Answer a request without a prompt: like Ollama, load the model, and answer once it is loaded."""
    # The request asks to unload the model. Models on demand unload by themselves; do not load the model only to unload
    # it.
    if _NO_TIME.fullmatch(str(decode(_Kept, call.body).keep_alive)):
        return Answer(shape.write(UNLOADED), headers=ignored)
    if not found.loading:
        return Answer(shape.write(LOADED), headers=ignored)
    return Ask(
        found.route, _describe(found), CompletionWriter(partial(encode_loaded, shape=shape), ignored), streaming=False
    )


def _describe(found: FoundModel) -> TextCompletionRequest:
    """A request for the model's description, which its provider can only answer by loading the model."""
    return TextCompletionRequest(operation="list-models", model=found.model)


def _parse_embed(call: Call) -> Ask | Answer:
    watch = Stopwatch()
    body = decode(EmbedBody, call.body)
    found = find_model(call, body.model)
    ignored = _show_ignored(call, EmbedBody)
    if body.input in {"", ()}:
        return Answer(EmbedWriter(NOTHING, body.model or "", watch, ignored).body(), headers=ignored)
    asked = read_embed("input", body.input, found, truncate=body.truncate, dimensions=body.dimensions)
    writer = EmbedWriter(asked, body.model or "", watch, ignored)
    return Ask(found.route, Batch(asked.requests, uniform=True), writer, streaming=False)


def _parse_embed_one(call: Call) -> Ask | Answer:
    body = decode(EmbedOneBody, call.body)
    found = find_model(call, body.model)
    ignored = _show_ignored(call, EmbedOneBody)
    if body.prompt == "":
        return Answer(b'{"embedding":[]}', headers=ignored)
    asked = read_embed("prompt", body.prompt, found)
    return Ask(found.route, Batch(asked.requests), EmbedOneWriter(asked, ignored), streaming=False)


def _parse_show(call: Call) -> Ask | Answer:
    body = decode(ShowBody, call.body)
    found = find_model(call, body.model or body.name)
    if found.route.plain:
        return Answer(encode_shown((), found.features))
    writer = CompletionWriter(partial(encode_shown, features=found.features))
    return Ask(found.route, _describe(found), writer, streaming=False)


def _show_ignored(call: Call, kind: type[msgspec.Struct]) -> dict[str, str]:
    return show_ignored(DIALECT, list_ignored(call.body, kind))


_PARSERS: Final[Mapping[str, Callable[[Call], Ask | Answer]]] = {
    "chat": _parse_text,
    "generate": _parse_text,
    "embed": _parse_embed,
    "embed-one": _parse_embed_one,
    "show": _parse_show,
    "tags": lambda call: Answer(encode_tags(call.catalogue)),
    "ps": lambda call: Answer(encode_running(call.catalogue)),
    "version": lambda call: Answer(encode_version()),
}
"""Operation -> its answer. Ollama's other operations would change the set of models."""
OLLAMA: Final = Ollama()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/api/chat", OLLAMA, "chat", large=True),
    Mount("POST", "/api/generate", OLLAMA, "generate", large=True),
    Mount("POST", "/api/embed", OLLAMA, "embed", large=True),
    Mount("POST", "/api/embeddings", OLLAMA, "embed-one", large=True),
    Mount("GET", "/api/tags", OLLAMA, "tags"),
    Mount("POST", "/api/show", OLLAMA, "show"),
    Mount("GET", "/api/ps", OLLAMA, "ps"),
    Mount("GET", "/api/version", OLLAMA, "version"),
    Mount("POST", "/api/pull", OLLAMA, "pull"),
    Mount("POST", "/api/push", OLLAMA, "push"),
    Mount("POST", "/api/create", OLLAMA, "create"),
    Mount("POST", "/api/copy", OLLAMA, "copy"),
    Mount("DELETE", "/api/delete", OLLAMA, "delete"),
    Mount("POST", "/api/blobs/{digest}", OLLAMA, "create"),
    Mount("HEAD", "/api/blobs/{digest}", OLLAMA, "create"),
)
"""Where Ollama's clients find us: `OLLAMA_HOST` is `http://HOST:PORT`."""
