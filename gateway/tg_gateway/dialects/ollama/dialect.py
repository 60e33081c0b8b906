"""Ollama's protocol over HTTP: what a path means, and how requests, answers and errors are encoded."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import (
    ASKING,
    Answer,
    Ask,
    Batch,
    Call,
    CompletionWriter,
    Description,
    Dialect,
    FoundModel,
    Mount,
    show_ignored,
)
from tg_gateway.dialects.chat import read_inputs
from tg_gateway.dialects.embeddings import (
    MAX_INPUTS,
    EncodedVectors,
    Vector,
    VectorsBody,
    VectorWriter,
    make_vector_requests,
)
from tg_gateway.dialects.ollama.answer_shape import (
    LOADED,
    UNLOADED,
    AnswerShape,
    ChatAnswer,
    ChatShape,
    GenerateAnswer,
    GenerateShape,
)
from tg_gateway.dialects.ollama.answer_writers import AnswerLineWriter, encode_answer, encode_loaded
from tg_gateway.dialects.ollama.bodies import ChatBody, EmbedBody, EmbedOneBody, GenerateBody, ShowBody
from tg_gateway.dialects.ollama.failures import OLLAMA_FIELDS, Failure, encode_failure, refuse_absent
from tg_gateway.dialects.ollama.model_list import (
    Models,
    ShownModel,
    Version,
    encode_running,
    encode_shown,
    encode_tags,
    encode_version,
    find_model,
)
from tg_gateway.dialects.ollama.request import list_ignored, read_chat, read_generate
from tg_gateway.dialects.ollama.stopwatch import Stopwatch
from tg_schema import TextCompletionRequest, TgError, decode, encode
from tg_schema.errors import BadRequest

DIALECT: Final = "ollama"
"""The name of this wire format in the log."""
_NO_TIME: Final = re.compile(r"0+(\.0*)?[a-zµ]*")
"""A `keep_alive` of 0: a number of seconds, or a duration as text."""

LINES: Final = "application/x-ndjson"


def read_embed(
    field: str,
    given: str | tuple[str, ...] | None,
    found: FoundModel,
    *,
    truncate: bool | None = None,
    dimensions: int | None = None,
) -> tuple[TextCompletionRequest, ...]:
    """The requests for the vectors of the inputs.

    Args:
        field: the inputs' name, for errors.
        given: the value of the field; not empty.
        found: the model.
        truncate: whether longer texts are truncated; None = yes, if the model can truncate.
        dimensions: numbers in each vector; None = the model's own.

    Raises:
        BadRequest: an input is empty, there are too many, or the model is a plain peer's.
    """
    cut = "truncate" in found.features if truncate is None else truncate
    asked = VectorsBody(truncate_prompt_tokens=-1 if cut else None)
    inputs = read_inputs(field, given, MAX_INPUTS)
    return make_vector_requests(asked, found, [(None, inputs)], dimensions=dimensions)


class EmbedWriter(VectorWriter):
    """All vectors, each of length 1, as Ollama returns them.

    Args:
        requests: the requests that the records answer.
        model: its name, as the client wrote it.
        watch: runs since the request arrived.
    """

    def __init__(self, requests: Sequence[TextCompletionRequest], model: str, watch: Stopwatch) -> None:
        super().__init__(requests)
        self._vectors = EncodedVectors(self.count)
        self._model = model
        self._watch = watch

    @override
    def take(self, number: int, vector: Vector) -> None:
        length = math.hypot(*vector) or 1.0
        self._vectors.add(number, encode([value / length for value in vector]))

    @override
    def body(self) -> bytes:
        count = b"" if self.usage is None else b',"prompt_eval_count":%d' % self.usage.prompt_tokens
        return b'{"model":%b,"embeddings":[%b],"total_duration":%d,"load_duration":0%b}' % (
            encode(self._model),
            self._vectors.join(),
            self._watch.read()[0],
            count,
        )


class EmbedOneWriter(VectorWriter):
    """One vector, as the model returns it.

    Args:
        requests: the only one, which the records answer.
    """

    def __init__(self, requests: Sequence[TextCompletionRequest]) -> None:
        super().__init__(requests)
        self._vector = b"[]"

    @override
    def take(self, number: int, vector: Vector) -> None:
        self._vector = encode(vector)

    @override
    def body(self) -> bytes:
        return b'{"embedding":%b}' % self._vector


class EmbedAnswer(msgspec.Struct, frozen=True):
    """The vectors of several texts."""

    model: str
    embeddings: tuple[tuple[float, ...], ...]
    total_duration: int
    load_duration: int
    prompt_eval_count: int | None = None


class EmbedOneAnswer(msgspec.Struct, frozen=True):
    """The vector of one text."""

    embedding: tuple[float, ...]


_describe = partial(Description, group="Ollama", failure=Failure)
_ask = partial(_describe, raises=ASKING)
_FEW: Final = {"num_predict": 16}
_CHAT: Final = {"model": "tinydemo", "messages": [{"role": "user", "content": "Hello"}], "options": _FEW}
_TEXT: Final = {"model": "tinydemo", "prompt": "Once upon a time", "options": _FEW}
_ABSENT: Final = ("pull", "push", "create", "copy", "delete")
"""Operations that would change the set of models."""


class _Kept(msgspec.Struct, frozen=True):
    keep_alive: Any = None


class Ollama(Dialect):
    """Chats, texts, vectors and lists of models, as the `ollama` packages ask for them."""

    descriptions: ClassVar[Mapping[str, Description]] = {
        "chat": _ask(
            summary="Continue a conversation",
            body=ChatBody,
            answer=ChatAnswer,
            events=LINES,
            event=(ChatAnswer, Failure),
            examples={"streamed": _CHAT, "whole": {**_CHAT, "stream": False, "logprobs": True}},
        ),
        "generate": _ask(
            summary="Answer a prompt",
            body=GenerateBody,
            answer=GenerateAnswer,
            events=LINES,
            event=(GenerateAnswer, Failure),
            examples={"streamed": _TEXT, "whole": {**_TEXT, "stream": False}},
        ),
        "embed": _ask(
            summary="Make vectors of texts",
            body=EmbedBody,
            answer=EmbedAnswer,
            examples={"texts": {"model": "tinydemo", "input": ["One"]}},
        ),
        "embed-one": _ask(
            summary="Make a vector of a text",
            body=EmbedOneBody,
            answer=EmbedOneAnswer,
            examples={"text": {"model": "tinydemo", "prompt": "One"}},
        ),
        "show": _ask(
            summary="Show a model", body=ShowBody, answer=ShownModel, examples={"model": {"model": "tinydemo"}}
        ),
        "tags": _describe(summary="List the models", answer=Models),
        "ps": _describe(summary="List the models that are loaded", answer=Models),
        "version": _describe(summary="Tell the version of the API", answer=Version),
        **{
            name: _describe(
                summary="Refuse to change which models there are",
                path={"digest": "sha256:0"},
                statuses=(501,),
                raises=(BadRequest,),
            )
            for name in _ABSENT
        },
    }

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
    whole = CompletionWriter(partial(encode_answer, shape=shape, watch=watch))
    writer = AnswerLineWriter(shape, watch) if streaming else whole
    return Ask(found.route, request, writer, streaming, fields=OLLAMA_FIELDS, headers=ignored)


def _load(call: Call, found: FoundModel, shape: AnswerShape, ignored: dict[str, str]) -> Ask | Answer:
    """Answer a request without a prompt: like Ollama, load the model, and answer once it is loaded."""
    # The request asks to unload the model. Models on demand unload by themselves; do not load the model only to unload
    # it.
    if _NO_TIME.fullmatch(str(decode(_Kept, call.body).keep_alive)):
        return Answer(shape.write(**UNLOADED), headers=ignored)
    if not found.loading:
        return Answer(shape.write(**LOADED), headers=ignored)
    writer = CompletionWriter(partial(encode_loaded, shape=shape))
    return Ask(found.route, _make_description_request(found), writer, streaming=False, headers=ignored)


def _make_description_request(found: FoundModel) -> TextCompletionRequest:
    """A request for the model's description, which its provider can only answer by loading the model."""
    return TextCompletionRequest(operation="list-models", model=found.model)


def _parse_embed(call: Call) -> Ask | Answer:
    watch = Stopwatch()
    body = decode(EmbedBody, call.body)
    found = find_model(call, body.model)
    ignored = _show_ignored(call, EmbedBody)
    if body.input in {"", ()}:
        return Answer(EmbedWriter((), body.model or "", watch).body(), headers=ignored)
    asked = read_embed("input", body.input, found, truncate=body.truncate, dimensions=body.dimensions)
    writer = EmbedWriter(asked, body.model or "", watch)
    return Ask(found.route, Batch(asked, uniform=True), writer, streaming=False, headers=ignored)


def _parse_embed_one(call: Call) -> Ask | Answer:
    body = decode(EmbedOneBody, call.body)
    found = find_model(call, body.model)
    ignored = _show_ignored(call, EmbedOneBody)
    if body.prompt == "":
        return Answer(b'{"embedding":[]}', headers=ignored)
    asked = read_embed("prompt", body.prompt, found)
    return Ask(found.route, Batch(asked), EmbedOneWriter(asked), streaming=False, headers=ignored)


def _parse_show(call: Call) -> Ask | Answer:
    body = decode(ShowBody, call.body)
    found = find_model(call, body.model or body.name)
    if found.route.plain:
        return Answer(encode_shown((), found.features))
    writer = CompletionWriter(partial(encode_shown, features=found.features))
    return Ask(found.route, _make_description_request(found), writer, streaming=False)


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
