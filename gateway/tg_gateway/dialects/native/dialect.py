"""Our own protocol over HTTP: which service a path means, and how requests, answers and errors are encoded."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from typing_extensions import override

from tg_base.config import GatewayConfig
from tg_base.protocol import Route
from tg_gateway.dialects import (
    ASKING,
    EVENTS,
    Answer,
    Ask,
    Call,
    CompletionWriter,
    Conversation,
    Description,
    Dialect,
    ExpiredStream,
    IdempotencyKey,
    Keeping,
    Mount,
    Socket,
    StreamedAnswer,
    Writer,
    digest_request,
    text_frame,
)
from tg_gateway.dialects.native import envelope
from tg_gateway.dialects.native.failures import NativeFailure, NativeRefusal, encode_refusal
from tg_gateway.dialects.native.flow_service import FLOW_SERVICES, MODELS, answer_flow_service, list_models
from tg_gateway.dialects.native.live import LIVE, STOP, show_live, stop_stream
from tg_gateway.dialects.native.page import INDEX, PAGE, show_page
from tg_gateway.dialects.native.request_bodies import PromptBody
from tg_gateway.dialects.native.services import (
    SERVICES,
    AttachedWriter,
    EventWriter,
    MessageWriter,
    NativeService,
    frame_whole,
    service_of,
)
from tg_gateway.dialects.native.streams import (
    CANCEL,
    LIST,
    READ,
    ListQuery,
    StreamQuery,
    cancel_stream,
    list_streams,
    read_stream,
)
from tg_gateway.dialects.native.usage import UsageQuery, ask_usage
from tg_schema import (
    AGENT,
    PROMPT,
    TEXT_COMPLETION,
    AgentRequest,
    AgentResponse,
    PromptResponse,
    TextCompletionRequest,
    TextCompletionResponse,
    TgError,
    decode,
)
from tg_schema.errors import AccessDenied, BadRequest, BusError, NotFound, RateLimited, Unauthorized, Unavailable
from tg_schema.live import ListedStream, ListedStreams, LiveDocument, StoppedStream
from tg_schema.served_model import ServedModels
from tg_schema.service_spec import USAGE
from tg_schema.usage_report import UsageResponse

_describe = partial(Description, group="Tokengrid", failure=NativeRefusal)
_ask = partial(_describe, events=EVENTS, raises=ASKING)
_ABOUT_KEPT: Final = (BadRequest, NotFound, ExpiredStream, RateLimited, Unavailable, BusError)
_COMPLETIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "whole": {"system": "be brief", "prompt": "What is a topic?"},
    "streamed": {"prompt": "What is a topic?", "streaming": True},
    "conversation": {"messages": [{"role": "user", "content": "Hello"}], "sampling": {"max_tokens": 16}},
}


class NativeConversation(Conversation):
    """One client's envelopes.

    Args:
        socket: its WebSocket.
    """

    __slots__ = ("_socket",)

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    @override
    def take(self, message: bytes) -> None:
        size = len(message)
        try:
            # Check the size before the message is read, which would hold up all other clients. Without a key the limit
            # is an envelope's.
            if size > envelope.ENVELOPE_BYTES and self._socket.key is None:
                raise Unauthorized("auth failure")
            self._socket.check_size(size - envelope.ENVELOPE_BYTES)
            asked = decode(envelope.Envelope, message)
            if asked.type == "auth":
                self._authenticate(asked.token)
            else:
                self._dispatch(asked)
        except TgError as error:
            self._refuse(envelope.id_of(message), error)

    def _authenticate(self, token: str | None) -> None:
        try:
            self._socket.authenticate(token)
        except TgError as error:
            self._send(envelope.auth_failed(error))
        else:
            self._send(envelope.AUTH_OK)

    def _dispatch(self, asked: envelope.Envelope) -> None:
        socket = self._socket
        # A client whose key was revoked may still cancel its requests.
        if socket.key is None and not (asked.cancel and socket.is_running(asked.id)):
            raise Unauthorized("auth failure")
        if asked.id is None:
            raise BadRequest("id is missing: every request needs one of its own")
        if isinstance(asked.id, str) and len(asked.id) > socket.max_name:
            raise BadRequest(f"id may have at most {socket.max_name} characters")
        if asked.cancel:
            socket.cancel(asked.id)
        elif socket.is_running(asked.id):
            raise BadRequest("a request with this id is running on this socket; take another id")
        elif asked.attach is not None:
            self._attach(asked.id, asked.attach, asked.offset)
        elif asked.service is None or not bytes(asked.request):
            raise BadRequest("service or request is missing: send `id`, `service`, `request` and, optionally, `flow`")
        elif asked.flow is None and asked.service in FLOW_SERVICES:
            answer = answer_flow_service(socket.catalogue, asked.service, bytes(asked.request))
            self._send(envelope.response(envelope.opening(asked.id), answer, last=True))
        else:
            route = socket.catalogue.find_service(asked.flow, asked.service)
            self._ask(asked.id, asked, route)

    def _ask(self, name: envelope.Id, sent: envelope.Envelope, route: Route[Any, Any]) -> None:
        service, flow, body = service_of(route.spec), sent.flow, bytes(sent.request)
        message, word = MessageWriter(service, name), sent.request_key
        keeping = Keeping(
            sent.keep,
            attach=partial(AttachedWriter, service, name),
            announce=lambda stream: text_frame(envelope.kept(envelope.opening(name), stream)),
        )

        def parse() -> Ask:
            chosen, request = route, service.parse(body)
            if isinstance(request, TextCompletionRequest) and request.model:
                chosen, request = self._socket.catalogue.choose_model(flow, route, request)
            if request.streaming:
                return Ask(chosen, request, message, streaming=True, keeping=keeping)
            whole = CompletionWriter(partial(frame_whole, service=service, name=name), record=route.spec.response)
            return Ask(chosen, request, whole, streaming=False, keeping=keeping)

        async def share() -> Ask:
            asked = parse()
            digest = await digest_request(f"{flow}/{service.spec.name}", body)
            key = IdempotencyKey("request_key", self._socket.key, word or "", digest)
            return replace(asked, keeping=replace(keeping, key=key))

        self._socket.ask(name, route, len(body), parse if word is None else share, message.fail)

    def _attach(self, name: envelope.Id, stream: str, after: int) -> None:
        def restore(form: bytes) -> AttachedWriter:
            return AttachedWriter(_find_service(form), name, stream)

        def fail(error: TgError) -> bytes:
            return text_frame(envelope.failure(envelope.opening(name), error, error.type))

        self._socket.attach(name, stream, after, restore, fail)

    def _refuse(self, request: envelope.Id | None, error: TgError) -> None:
        kind = "auth-required" if isinstance(error, Unauthorized) else error.type
        if request is not None and self._socket.is_running(request):
            self._send(envelope.aside(request, error, kind))
            return
        # An id over the limit is not repeated: it may be as large as a message.
        short = request is not None and len(str(request)) <= self._socket.max_name
        opened = envelope.opening(request) if short and request is not None else b"{"
        self._send(envelope.failure(opened, error, kind))

    def _send(self, message: bytes) -> None:
        self._socket.send(text_frame(message))


class Native(Dialect):
    """The short paths name a service of the model's flow or of `default`; TrustGraph's paths name the flow as well.

    Args:
        page: whether it shows the page, too.
    """

    precedence = 2
    descriptions: ClassVar[Mapping[str, Description]] = {
        TEXT_COMPLETION.name: _ask(
            summary="Ask a model",
            body=TextCompletionRequest,
            answer=TextCompletionResponse,
            event=(TextCompletionResponse, NativeFailure),
            examples=_COMPLETIONS,
        ),
        PROMPT.name: _ask(
            summary="Ask a prompt template",
            body=PromptBody,
            required=("id",),
            answer=PromptResponse,
            event=(PromptResponse, NativeFailure),
            examples={"question": {"id": "question", "variables": {"question": "What is a queue?"}, "streaming": True}},
        ),
        AGENT.name: _ask(
            summary="Ask an agent",
            body=AgentRequest,
            required=("question",),
            answer=AgentResponse,
            event=AgentResponse,
            examples={"question": {"question": "What is 2 * 21?", "streaming": True}},
        ),
        "service": _ask(
            summary="Ask a service of a flow",
            body=(TextCompletionRequest, PromptBody, AgentRequest),
            answer=(TextCompletionResponse, PromptResponse, AgentResponse),
            event=(TextCompletionResponse, PromptResponse, AgentResponse, NativeFailure),
            path={"flow": "default", "service": TEXT_COMPLETION.name},
            examples=_COMPLETIONS,
        ),
        MODELS: _describe(summary="List the models, with their flows and features", answer=ServedModels),
        USAGE.name: _describe(
            summary="Sum up what was used, by key, model and the like",
            query=UsageQuery,
            answer=UsageResponse,
            raises=ASKING,
        ),
        LIVE: _describe(
            summary="Show what this gateway does now, once or as it changes",
            answer=LiveDocument,
            events=EVENTS,
            event=LiveDocument,
            raises=(RateLimited,),
        ),
        STOP: _describe(
            summary="Stop a stream of this gateway",
            answer=StoppedStream,
            path={"stream": "7f3a"},
            raises=(NotFound,),
        ),
        LIST: _describe(
            summary="List the streams that are kept for a key, once or as they begin",
            query=ListQuery,
            answer=ListedStreams,
            events=EVENTS,
            event=ListedStream,
            raises=(AccessDenied, RateLimited, BusError),
        ),
        READ: _describe(
            summary="Read a stream that is kept, from any event on",
            query=StreamQuery,
            answer=None,
            events=EVENTS,
            event=dict[str, Any],
            further={"application/json": None},
            path={"stream": "ks-7f3a"},
            statuses=(200, 204, 304),
            raises=_ABOUT_KEPT,
        ),
        CANCEL: _describe(
            summary="Stop a stream that is kept",
            answer=StoppedStream,
            path={"stream": "ks-7f3a"},
            raises=_ABOUT_KEPT,
        ),
        PAGE: _describe(
            summary="Show the page to chat, or a file of it",
            answer=str,
            media="text/html",
            # TGI's clients find the health of their server at the same path.
            further={"application/json": None},
            path={"file": INDEX},
            raises=(NotFound,),
        ),
        "socket": _describe(summary="Open a WebSocket for many requests at once"),
    }

    def __init__(self, *, page: bool = True) -> None:
        self._page = page

    @override
    def configure(self, config: GatewayConfig) -> Dialect:
        return self if config.page else Native(page=False)

    @override
    def check_head(self, call: Call) -> None:
        if call.operation == USAGE.name:
            call.route = call.catalogue.find_anywhere(USAGE.name)
        elif call.operation not in {MODELS, PAGE, *_ABOUT_STREAMS}:
            _find(call)

    @override
    def parse(self, call: Call) -> Ask | Answer | Awaitable[Answer | StreamedAnswer]:
        if call.operation == PAGE:
            if not self._page:
                raise NotFound("the page is switched off: `page` of [gateway]")
            # In a thread, because the first call waits for the disk.
            return asyncio.to_thread(show_page, call)
        if call.operation == MODELS:
            return Answer(list_models(call.catalogue))
        if call.operation == USAGE.name:
            return ask_usage(call)
        if (about := _ABOUT_STREAMS.get(call.operation)) is not None:
            return about(call)
        # In a worker process, and for the API's description, the head was not checked.
        route = call.route or _find(call)
        service = service_of(route.spec)
        request = service.parse(call.body)
        if isinstance(request, TextCompletionRequest) and request.model:
            route, request = call.catalogue.choose_model(call.path.get("flow"), route, request)
        if request.streaming:
            return Ask(route, request, EventWriter(service), streaming=True)
        whole = CompletionWriter(service.whole, record=route.spec.response)
        return Ask(route, request, whole, streaming=False)

    @override
    def restore(self, form: bytes) -> Writer[Any]:
        return EventWriter(_find_service(form))

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return Answer(encode_refusal(error), status)

    @override
    def converse(self, socket: Socket) -> Conversation:
        return NativeConversation(socket)


def _find_service(form: bytes) -> NativeService:
    """The service of a stream that is kept. Raises BadRequest if another protocol requested it."""
    try:
        return SERVICES[decode(str, form)]
    except (BadRequest, KeyError):
        raise BadRequest("the stream is of another protocol: read it by GET /v1/streams/ID") from None


def _find(call: Call) -> Route[Any, Any]:
    flow, service = call.path.get("flow"), call.path.get("service", call.operation)
    route = call.route = call.catalogue.find_service(flow, service)
    return route


_ABOUT_STREAMS: Final[Mapping[str, Callable[[Call], Awaitable[Answer | StreamedAnswer]]]] = {
    LIVE: show_live,
    STOP: stop_stream,
    LIST: list_streams,
    READ: read_stream,
    CANCEL: cancel_stream,
}
NATIVE: Final = Native()

MOUNTS: Final[tuple[Mount, ...]] = (
    *(Mount("POST", f"/api/v1/{service}", NATIVE, service) for service in SERVICES),
    Mount("POST", "/api/v1/flow/{flow}/service/{service}", NATIVE, "service"),
    Mount("GET", "/api/v1/models", NATIVE, MODELS),
    Mount("GET", "/api/v1/usage", NATIVE, USAGE.name),
    Mount("GET", "/api/v1/live", NATIVE, LIVE),
    Mount("POST", "/api/v1/live/streams/{stream}/stop", NATIVE, STOP),
    Mount("GET", "/v1/streams", NATIVE, LIST, guest=True),
    Mount("GET", "/v1/streams/{stream}", NATIVE, READ, guest=True),
    Mount("POST", "/v1/streams/{stream}/cancel", NATIVE, CANCEL, guest=True),
    # A browser loads the page and its files before anybody can type a key.
    Mount("GET", "/", NATIVE, PAGE, accept="text/html", keyless=True),
    Mount("GET", "/page/{file}", NATIVE, PAGE, keyless=True),
    Mount("GET", "/api/v1/socket", NATIVE, "socket", socket=True, keyless=True),
)
"""Where our own protocol is."""
