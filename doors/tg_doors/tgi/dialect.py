"""TGI's protocol over HTTP: what each path means, and how requests, answers and errors are encoded."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tg_doors.tgi.answer_shapes import GeneratedText, StreamDetails, TokenEvent, make_alternatives, make_token
from tg_doors.tgi.failures import TGI_FIELDS, Failure, encode_failure_event, refuse
from tg_doors.tgi.generated_answers import GeneratedAnswers
from tg_doors.tgi.generation import list_ignored, read_generation
from tg_doors.tgi.generation_parameters import MAX_STOP_SEQUENCES, GenerateBody, GenerationParameters, unsign_seed
from tg_doors.tgi.timings import Timings
from tg_doors.tgi.token_reader import LastStep, Step, TokenReader
from tg_doors.tgi.tokenization import PlacedToken, TokenizedChat, parse_chat_tokenize, parse_tokenize
from tg_gateway.dialects import (
    ASKING,
    EVENTS,
    Answer,
    Ask,
    Call,
    Catalogue,
    CompletionWriter,
    Description,
    Dialect,
    Mount,
    WholeWriter,
    Writer,
    abridge_body,
    server_sent_event,
    show_ignored,
)
from tg_gateway.dialects.chat import ChatBody, find_asked_model
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError, decode, encode, try_decode
from tg_schema.errors import BadRequest, NotFound, Unavailable
from tg_schema.sampling import MAX_CHOICES

DIALECT: Final = "tgi"
"""The name of this wire format in the log."""
ROUTER: Final = "tokengrid"
LIMITS_SECONDS: Final = 5.0
"""Timeout of asking a provider for its limits; after it they count as unknown."""


class TokenEventWriter(Writer[TextCompletionResponse]):
    """An event for each token. The last one has the whole text, and the details if the request asked for them.

    Its token is the last one of an answer of full length, or the model's end token; otherwise it has the id -1.

    An answer that fails ends with one event and an orderly end, as TGI's does: its clients know a whole answer by the
    text in its last event.

    Args:
        body: the client's body.
    """

    def __init__(self, body: GenerateBody) -> None:
        self._body = body
        self._parameters = body.parameters or GenerationParameters()
        self._reader = TokenReader()
        self._last = LastStep(self._parameters.max_new_tokens)
        self._index = 0

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        return b"".join(map(self._encode, self._last.pass_on(self._reader.read(record))))

    @override
    def end(self) -> bytes:
        reader, asked = self._reader, self._parameters
        reason = reader.name_ending(asked.stop or ())
        details = StreamDetails(reason, reader.generated_tokens, unsign_seed(reader.seed), reader.usage.in_token or 0)
        prefix = self._body.inputs if asked.return_full_text else ""
        before, last = self._last.end(reader.end)
        events = b"".join(map(self._encode, before))
        return events + self._encode(last, prefix + reader.text, details if asked.details else None)

    @override
    def fail(self, error: TgError) -> bytes:
        return b"".join(map(self._encode, self._last.release())) + encode_failure_event(error)

    def _encode(self, step: Step, text: str | None = None, details: StreamDetails | None = None) -> bytes:
        self._index += 1
        token = make_token(step.token, step.text)
        event = TokenEvent(self._index, token, text, details, make_alternatives(step.token))
        return server_sent_event(encode(event))


class GeneratedTextWriter(WholeWriter[TextCompletionResponse]):
    """The whole answer in one body.

    Args:
        body: the client's body.
        timings: the clocks of the request.
        listed: whether it is in a list of one.
    """

    def __init__(self, body: GenerateBody, timings: Timings, *, listed: bool) -> None:
        super().__init__(TextCompletionResponse)
        self._parameters = body.parameters or GenerationParameters()
        self._prefix = body.inputs if self._parameters.return_full_text else ""
        self._timings = timings
        self._listed = listed

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        self._timings.begin()
        return super().write(record)

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        asked = self._parameters
        answers = GeneratedAnswers.of(records, asked.stop or (), asked.answers)
        measured = self._timings.end_headers(answers.in_token, answers.best.counted_tokens)
        self.headers = {**self.headers, **measured}
        details = answers.describe(self._prefix) if asked.wants_details else None
        whole = GeneratedText(self._prefix + answers.best.text, details)
        return encode([whole] if self._listed else whole)


class ServerInfo(msgspec.Struct, frozen=True):
    """TGI's fields; null = a gateway does not know that about its models."""

    model_id: str
    version: str
    model_sha: None = None
    model_pipeline_tag: str = "text-generation"
    max_concurrent_requests: None = None
    max_best_of: int = MAX_CHOICES
    max_stop_sequences: int = MAX_STOP_SEQUENCES
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
    validation_workers: None = None
    max_client_batch_size: int = 1
    router: str = ROUTER
    sha: None = None
    docker_label: None = None


_describe = partial(Description, group="Text Generation Inference", failure=Failure)
_generate = partial(_describe, body=GenerateBody, raises=ASKING)
_FEW: Final = {"max_new_tokens": 16}
_WHOLE: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"inputs": "Once upon a time", "parameters": _FEW},
    "details": {"inputs": "Once upon a time", "parameters": {**_FEW, "details": True}},
}


class _Streamed(msgspec.Struct, frozen=True):
    stream: bool = False


class TextGenerationInference(Dialect):
    """Raw text to text, as `text-generation` and `huggingface_hub` ask for it."""

    descriptions: ClassVar[Mapping[str, Description]] = {
        "generate-compatible": _generate(
            summary="Continue a text, whole or as events",
            answer=tuple[GeneratedText, ...],
            events=EVENTS,
            event=(TokenEvent, Failure),
            examples={**_WHOLE, "streamed": {"inputs": "Once upon a time", "parameters": _FEW, "stream": True}},
        ),
        "generate": _generate(summary="Continue a text", answer=GeneratedText, examples=_WHOLE),
        "stream": _generate(
            summary="Continue a text as events",
            events=EVENTS,
            event=(TokenEvent, Failure),
            examples={"streamed": {"inputs": "Once upon a time", "parameters": _FEW}},
        ),
        "tokenize": _generate(
            summary="Make tokens of a text",
            answer=tuple[PlacedToken, ...],
            examples={"inputs": {"inputs": "Once upon a time"}},
        ),
        "tokenize-chat": _describe(
            summary="Make tokens of a conversation",
            body=ChatBody,
            required=("messages",),
            answer=TokenizedChat,
            raises=ASKING,
            examples={"messages": {"messages": [{"role": "user", "content": "Hello"}]}},
        ),
        "info": _describe(summary="Tell the model and the limits", answer=ServerInfo, raises=(NotFound, Unavailable)),
        "health": _describe(summary="Tell whether any model can be asked", raises=(Unavailable,)),
    }

    @override
    def parse(self, call: Call) -> Ask | Answer:
        match call.operation:
            case "info":
                return _describe_server(call)
            case "health":
                return _show_health(call.catalogue)
            case "tokenize":
                return parse_tokenize(call)
            case "tokenize-chat":
                return parse_chat_tokenize(call)
            case _:
                return _parse_generation(call)

    @override
    def abridge(self, body: bytes) -> bytes:
        return abridge_body(body, _Streamed.__struct_fields__)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        if call.operation == "info" and call.route is not None:
            # The provider did not report the limits; everything else is known without it.
            return _describe_limitless(call)
        # An empty body was read too, so its error has the status of a wrong body.
        read = bool(call.body) or (isinstance(error, BadRequest) and status == error.status)
        return refuse(error, status, read=read, streamed=read and _is_streamed(call))


def _parse_generation(call: Call) -> Ask:
    timings = Timings()
    body = decode(GenerateBody, call.body)
    streaming = call.operation == "stream" or (call.operation == "generate-compatible" and bool(body.stream))
    found = find_asked_model(call, body.model, required=False)
    parameters = body.parameters or GenerationParameters()
    request = read_generation(body.inputs, parameters, found, streaming=streaming)
    headers = show_ignored(DIALECT, list_ignored(call.body, body))
    timings.ask(body.inputs)
    if streaming:
        headers |= timings.start_headers()
        return Ask(found.route, request, TokenEventWriter(body), streaming, fields=TGI_FIELDS, headers=headers)
    writer = GeneratedTextWriter(body, timings, listed=call.operation == "generate-compatible")
    return Ask(found.route, request, writer, streaming, on_accepted=timings.begin, fields=TGI_FIELDS, headers=headers)


def _describe_server(call: Call) -> Ask | Answer:
    """`GET /info`: describes the model of requests that name none. A running processor is asked for its limits.

    Raises:
        Unavailable: no model is known yet.
    """
    found = call.catalogue.find_model(None)
    if found.model is None:
        raise Unavailable("no live processor serves a model; ask again later", retry_after=1.0)
    if not found.features:
        return _describe_limitless(call)
    call.route = found.route
    request = TextCompletionRequest(operation="list-models", model=found.model)
    writer = CompletionWriter(partial(_encode_info, model=found.model))
    return Ask(found.route, request, writer, streaming=False, deadline=LIMITS_SECONDS)


def _describe_limitless(call: Call) -> Answer:
    """`GET /info` if no processor reports the model's limits."""
    return Answer(_encode_info((), call.catalogue.find_model(None).model or ""))


def _encode_info(records: Sequence[TextCompletionResponse], model: str) -> bytes:
    """The model and its limits, as its provider reports them: at least one token of its context is the answer's."""
    context = next((served.context_length for record in records for served in record.models), 0)
    limits = (context - 1, context) if context else (None, None)
    return encode(
        ServerInfo(model, version("tokengrid-gateway"), max_input_tokens=limits[0], max_total_tokens=limits[1])
    )


def _show_health(catalogue: Catalogue) -> Answer:
    """`GET /`: an empty 200 if any model can be asked now, else TGI's 503."""
    if catalogue.models():
        return Answer(b"")
    return Answer(encode(Failure("unhealthy", "healthcheck")), Unavailable.status)


def _is_streamed(call: Call) -> bool:
    """Whether the request asked for events; for an unreadable body, only its path decides."""
    if call.operation != "generate-compatible":
        return call.operation == "stream"
    body = try_decode(_Streamed, call.body)
    return body is not None and body.stream


TGI: Final = TextGenerationInference()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/", TGI, "generate-compatible", large=True),
    Mount("POST", "/generate", TGI, "generate", large=True),
    Mount("POST", "/generate_stream", TGI, "stream", large=True),
    # vLLM's API has the same path, for bodies with other keys.
    Mount("POST", "/tokenize", TGI, "tokenize", key="inputs", large=True),
    Mount("POST", "/chat_tokenize", TGI, "tokenize-chat", large=True),
    Mount("GET", "/info", TGI, "info"),
    # A client that checks whether the server is up has sent no key yet.
    Mount("GET", "/", TGI, "health", keyless=True),
)
"""Where TGI's clients find us: their base URL is the gateway's, without a path. `/health` is the gateway's own."""
