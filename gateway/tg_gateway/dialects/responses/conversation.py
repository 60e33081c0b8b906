"""OpenAI's Responses API on a WebSocket: answers `response.create` with the events of HTTP, one in each message.

Each `stream_id`, and its absence, is a lane with one response at a time; further requests wait. OpenAI's API has no
message that cancels one; `response.cancel` with the lane's `stream_id` is ours. The last response is kept for
`previous_response_id`. With `generate: false`, a response has only its input.
"""

from functools import partial
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Ask, Conversation, FoundModel, InvalidParameter, Output, Socket, show_ignored
from tg_gateway.dialects.chat import decode_body
from tg_gateway.dialects.responses.kept_items import drop_repeated
from tg_gateway.dialects.responses.lanes import Lanes, Turn
from tg_gateway.dialects.responses.last_response import LastResponse
from tg_gateway.dialects.responses.request import DIALECT, RESPONSES_FIELDS, check_body, list_items, make_request
from tg_gateway.dialects.responses.request_body import RequestBody
from tg_gateway.dialects.responses.response_draft import make_draft
from tg_gateway.dialects.responses.response_object import ResponseObject
from tg_gateway.dialects.responses.writers import FrameWriter, encode_error_frame
from tg_schema import TgError, try_decode
from tg_schema.errors import Cancelled, Unauthorized

_ENVELOPE: Final = frozenset({"type", "stream_id", "generate"})
"""Fields of a message that no body over HTTP has."""


class _Lane(msgspec.Struct, frozen=True, kw_only=True):
    stream_id: str | None = None


class _Envelope(_Lane, frozen=True, kw_only=True):
    type: str
    generate: bool | None = None


class ResponsesConversation(Conversation):
    """One client's responses.

    Args:
        socket: its WebSocket.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._last = LastResponse()
        self._lanes = Lanes()

    @override
    def take(self, message: bytes) -> None:
        try:
            # Check before parsing, which would delay all other clients.
            self._socket.check_size(len(message))
            self._dispatch(decode_body(_Envelope, message), message)
        except TgError as error:
            lane = try_decode(_Lane, message)
            self._socket.send(encode_error_frame(error, lane.stream_id if lane else None))

    def _dispatch(self, envelope: _Envelope, message: bytes) -> None:
        lane = envelope.stream_id
        if lane is not None and len(lane) > self._socket.max_name:
            raise InvalidParameter(f"stream_id may have at most {self._socket.max_name} characters", "stream_id")
        match envelope.type:
            case "response.cancel":
                if (turn := self._lanes.find_first(lane)) is not None:
                    self._socket.cancel(turn)
            case "response.create":
                self._create(envelope, message)
            case "response.steer":
                raise InvalidParameter("responses are not steered here: cancel it, and create another", "type")
            case _:
                raise InvalidParameter("send a message of the type response.create", "type", "unsupported_value")

    def _create(self, envelope: _Envelope, message: bytes) -> None:
        body = decode_body(RequestBody, message)
        try:
            self._ask(envelope, message, body)
        except TgError:
            # As in OpenAI's API, a response cannot be continued once a request that continued it has failed.
            self._last.forget(body.previous_response_id)
            raise

    def _ask(self, envelope: _Envelope, message: bytes, body: RequestBody) -> None:
        socket, lane = self._socket, envelope.stream_id
        if socket.key is None:
            raise Unauthorized("the key is not valid any more; open another socket")
        runs = envelope.generate is False and self._lanes.find_first(lane) is not None
        InvalidParameter.refuse_first(
            (body.background, "background", None, "a socket has no background: create the response with POST"),
            (runs, "generate", None, "a response is running on this stream_id; wait for its end"),
        )
        found, turn = socket.catalogue.find_model(body.model), self._lanes.enter(lane)
        try:
            asked = self._begin(turn, message, body, found) if turn.come.is_set() else None
            # A response that has only its input: later requests can continue from it, and no model is asked.
            if envelope.generate is False and turn.writer is not None:
                socket.send(turn.writer.end())
            else:
                parse = partial(self._wait, turn, message, body, found) if asked is None else lambda: asked
                socket.ask(turn, found.route, len(message), parse, partial(self._fail, turn, body.previous_response_id))
        except TgError:
            self._lanes.leave(turn)
            raise

    async def _wait(self, turn: Turn, message: bytes, body: RequestBody, found: FoundModel) -> Ask:
        await turn.come.wait()
        found = self._socket.catalogue.find_again(found.name, found.route.flow, body.model)
        return self._begin(turn, message, body, found)

    def _begin(self, turn: Turn, message: bytes, body: RequestBody, found: FoundModel) -> Ask:
        """Read a request whose turn has come: it may continue from the response before it."""
        previous = body.previous_response_id
        kept = self._last.find(previous) if previous is not None else ()
        size = len(message) + (self._last.size if kept else 0)
        items = (*kept, *drop_repeated(list_items(body), kept))
        body = msgspec.structs.replace(body, stream=True, input=items, store=None)
        check_body(body)
        request = make_request(message, body, found, len(kept))
        show_ignored(DIALECT, (name for name in request.ignored if name not in _ENVELOPE))

        def keep(response: ResponseObject) -> None:
            self._last.keep(response.id, items, size, response.output)
            self._lanes.leave(turn)

        draft = make_draft(request, found.model or body.model or "")
        turn.writer = FrameWriter(draft, turn.lane, keep, lambda: self._last.forget(previous))
        return Ask(found.route, request.record, turn.writer, streaming=True, fields=RESPONSES_FIELDS)

    def _fail(self, turn: Turn, previous: str | None, error: TgError) -> Output:
        writer = turn.writer
        self._lanes.leave(turn)
        if writer is not None:
            return writer.fail(error)
        if not isinstance(error, Cancelled):
            self._last.forget(previous)
        return encode_error_frame(error, turn.lane)
