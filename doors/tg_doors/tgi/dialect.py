"""TGI's protocol over HTTP: what each of its paths asks, and how it is answered and refused."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tg_doors.tgi.answer_shapes import GeneratedText, TokenEvent
from tg_doors.tgi.failures import TGI_FIELDS, Failure, refuse
from tg_doors.tgi.generation import list_ignored, read_generation
from tg_doors.tgi.generation_parameters import GenerateBody, GenerationParameters
from tg_doors.tgi.server_info import ServerInfo, describe_limitless, describe_server, show_health
from tg_doors.tgi.timings import Timings
from tg_doors.tgi.tokenization import PlacedToken, TokenizedChat, parse_chat_tokenize, parse_tokenize
from tg_doors.tgi.writers import GeneratedTextWriter, TokenEventWriter
from tg_gateway.dialects import (
    ASKING,
    EVENTS,
    Answer,
    Ask,
    Call,
    Description,
    Dialect,
    Mount,
    Writer,
    abridge_body,
    show_ignored,
)
from tg_gateway.dialects.chat import ChatBody, find_asked_model
from tg_schema import TextCompletionResponse, TgError, decode
from tg_schema.errors import BadRequest, NotFound, Unavailable

DIALECT: Final = "tgi"
"""The name of this wire format in the log."""

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
                return describe_server(call)
            case "health":
                return show_health(call.catalogue)
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
            return describe_limitless(call)
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
    ignored = show_ignored(DIALECT, list_ignored(call.body, body))
    timings.ask(body.inputs)
    writer: Writer[TextCompletionResponse]
    if streaming:
        writer = TokenEventWriter(body, timings.start_headers() | ignored)
    else:
        listed = call.operation == "generate-compatible"
        writer = GeneratedTextWriter(body, timings, ignored, listed=listed)
    begin = None if streaming else timings.begin
    return Ask(found.route, request, writer, streaming, on_accepted=begin, fields=TGI_FIELDS)


def _is_streamed(call: Call) -> bool:
    """Whether events were asked for; a body that cannot be read has asked for none, unless its path does."""
    if call.operation != "generate-compatible":
        return call.operation == "stream"
    try:
        return decode(_Streamed, call.body).stream
    except BadRequest:
        return False


TGI: Final = TextGenerationInference()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/", TGI, "generate-compatible", large=True),
    Mount("POST", "/generate", TGI, "generate", large=True),
    Mount("POST", "/generate_stream", TGI, "stream", large=True),
    # vLLM's API has the same path, for bodies with other keys.
    Mount("POST", "/tokenize", TGI, "tokenize", key="inputs", large=True),
    Mount("POST", "/chat_tokenize", TGI, "tokenize-chat", large=True),
    Mount("GET", "/info", TGI, "info"),
    # A client that checks whether the server is there has shown no key yet.
    Mount("GET", "/", TGI, "health", keyless=True),
)
"""Where TGI's clients find us: their base URL is the gateway's, without a path. `/health` is the gateway's own."""
