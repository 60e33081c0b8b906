"""Our own protocol on a WebSocket: envelopes in, requests side by side, envelopes out."""

from functools import partial
from typing import Any

from typing_extensions import override

from tg_base.protocol import Route
from tg_gateway.dialects import Ask, CompletionWriter, Conversation, Socket, text_frame
from tg_gateway.dialects.native import envelope
from tg_gateway.dialects.native.flow_service import FLOW_SERVICES, answer_flow_service
from tg_gateway.dialects.native.services import MessageWriter, frame_whole, service_of
from tg_schema import TextCompletionRequest, TgError, decode
from tg_schema.errors import BadRequest, Unauthorized


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
            # Before it is read, which would hold up all other clients. Without a key the limit is that of an envelope.
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
        elif asked.service is None or not bytes(asked.request):
            raise BadRequest("service or request is missing: send `id`, `service`, `request` and, optionally, `flow`")
        elif asked.flow is None and asked.service in FLOW_SERVICES:
            answer = answer_flow_service(socket.catalogue, asked.service, bytes(asked.request))
            self._send(envelope.response(envelope.opening(asked.id), answer, last=True))
        else:
            route = socket.catalogue.find_service(asked.flow, asked.service)
            self._ask(asked.id, asked.flow, route, bytes(asked.request))

    def _ask(self, name: envelope.Id, flow: str | None, route: Route[Any, Any], body: bytes) -> None:
        service = service_of(route.spec)
        message = MessageWriter(service, name)

        def parse() -> Ask:
            chosen, request = route, service.parse(body)
            if isinstance(request, TextCompletionRequest) and request.model:
                chosen, request = self._socket.catalogue.choose_model(flow, route, request)
            if request.streaming:
                return Ask(chosen, request, message, streaming=True)
            whole = CompletionWriter(partial(frame_whole, service=service, name=name), record=route.spec.response)
            return Ask(chosen, request, whole, streaming=False)

        self._socket.ask(name, route, len(body), parse, message.fail)

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
