"""One HTTP request in Envoy -> picker: its messages in, the replies out. No network and no clock.

Envoy sends the parts of a request and then of its response, and waits for a reply to each. Its processing mode decides
how much it sends: `FULL_DUPLEX_STREAMED` or `BUFFERED` for the request; any mode, or nothing, for the response.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Literal

from tg_base.telemetry import LOAD_RESPONSE_HEADER
from tg_picker.extproc import messages, wire
from tg_picker.extproc.decision import Asked, Course, Directed, Picker, Refused
from tg_picker.extproc.messages import NOTHING_FOR
from tg_picker.extproc.usage_reader import UsageReader

MAX_BODY_BYTES = 32 * 1024 * 1024

_Mode = wire.ProcessingMode
_READABLE = {_Mode.NONE, _Mode.BUFFERED, _Mode.FULL_DUPLEX_STREAMED}
_WRONG_MODE = Refused(
    500,
    "unsupported-processing-mode",
    "this picker needs the whole body: set request_body_mode to FULL_DUPLEX_STREAMED or BUFFERED in Envoy's filter",
)
_TOO_LARGE = Refused(413, "too-large", f"the body exceeds {MAX_BODY_BYTES} bytes; send less")
_HEADER_COST = 64
"""Bytes counted for each header in addition to its text."""
_NO_ANSWER: tuple[wire.ProcessingResponse, ...] = ()

_Answers = Iterable[wire.ProcessingResponse]


class Exchange:
    """One stream of messages. `close` must be called, however it ends.

    It collects the request's body, asks the picker once, and directs the request. Parts of the response are passed on
    at once, and reported to the course.

    Attributes:
        over: whether the client was refused, so that no message may follow.
    """

    def __init__(self, picker: Picker) -> None:
        self.over = False
        self._picker = picker
        self._request_mode = self._response_mode = _Mode.FULL_DUPLEX_STREAMED
        self._is_unread = False
        self._headers: dict[str, str] = {}
        self._subset: frozenset[str] | None = None
        self._body: bytes | bytearray = bytearray()
        self._is_complete = False
        self._course: Course | None = None
        self._usage: UsageReader | None = None

    def count_held(self) -> int:
        """Bytes of messages that it holds. It holds the request's body until the last piece is on its way back."""
        headers = sum(len(name) + len(value) + _HEADER_COST for name, value in self._headers.items())
        return len(self._body) + headers + (0 if self._usage is None else self._usage.held)

    async def take(self, message: wire.ProcessingRequest) -> _Answers:
        """Take Envoy's next message. Returns the replies to it, in order.

        A message of a kind that this protocol version does not have gets no reply.
        """
        if message.HasField("protocol_config"):
            self._response_mode = message.protocol_config.response_body_mode
        take = self._takes.get(message.WhichOneof("request"))
        return _NO_ANSWER if take is None else await take(self, message)

    def close(self) -> None:
        """Report that the request is over, unless it was reported: the client or the endpoint left."""
        course, self._course = self._course, None
        if course is not None:
            course.end(self._usage.read() if self._usage is not None else None)

    async def _take_request_headers(self, message: wire.ProcessingRequest) -> _Answers:
        """Pick at once if there is no body. In duplex mode, nothing may be answered before the body is complete."""
        if self._is_complete:
            return _NO_ANSWER
        # Read the mode only here: it must not change while a body is collected.
        if message.HasField("protocol_config"):
            self._request_mode = message.protocol_config.request_body_mode
            self._is_unread = message.protocol_config.response_body_mode == _Mode.NONE
        self._headers = messages.read_headers(message.request_headers.headers)
        self._subset = messages.read_subset(message)
        if self._request_mode not in _READABLE:
            return self._refuse(_WRONG_MODE)
        if message.request_headers.end_of_stream or self._request_mode == _Mode.NONE:
            return await self._direct("request_headers")
        return _NO_ANSWER if self._request_mode == _Mode.FULL_DUPLEX_STREAMED else (NOTHING_FOR["request_headers"],)

    async def _take_request_body(self, message: wire.ProcessingRequest) -> _Answers:
        """Collect the body, and pick when it is complete."""
        if self._is_complete:
            # Envoy 1.35 and later may send the last piece of a large body twice (envoyproxy/envoy#46237).
            return _NO_ANSWER
        body = message.request_body
        self._body += body.body
        if len(self._body) > MAX_BODY_BYTES:
            return self._refuse(_TOO_LARGE)
        if body.end_of_stream or self._request_mode != _Mode.FULL_DUPLEX_STREAMED:
            return await self._direct("request_body")
        return _NO_ANSWER

    async def _take_request_trailers(self, _: wire.ProcessingRequest) -> _Answers:
        """End a body whose pieces did not say that it was complete."""
        directing = _NO_ANSWER if self._is_complete else await self._direct("request_body", last=False)
        return directing if self.over else chain(directing, (NOTHING_FOR["request_trailers"],))

    async def _direct(self, kind: Literal["request_headers", "request_body"], *, last: bool = True) -> _Answers:
        """Ask the picker, and reply to the message that completed the request."""
        self._is_complete = True
        # The headers stay in memory until the decision, so `count_held` includes them.
        self._body = body = bytes(self._body)
        told = None if kind == "request_headers" else body
        decision = await self._picker.decide(Asked(self._headers, told, self._subset, self._is_unread))
        if isinstance(decision, Refused):
            return self._refuse(decision)
        self._course = decision.course
        if kind == "request_body" and self._request_mode == _Mode.FULL_DUPLEX_STREAMED:
            return self._pass_on(decision, body if decision.body is None else decision.body, last=last)
        self._body = b""
        return (messages.direct(kind, decision),)

    def _pass_on(self, directed: Directed, body: bytes, *, last: bool) -> Iterator[wire.ProcessingResponse]:
        yield messages.direct("request_headers", directed)
        yield from messages.pass_on_request(body, last=last)
        self._body = b""

    def _refuse(self, refused: Refused) -> _Answers:
        self._is_complete = self.over = True
        return [messages.refuse(refused, self._headers.get(":path", ""))]

    async def _take_response_headers(self, message: wire.ProcessingRequest) -> _Answers:
        """Report the endpoint that answered, its status and its load."""
        headers = messages.read_headers(message.response_headers.headers)
        if self._course is not None:
            if address := messages.read_served(message):
                self._course.served(address)
            status = headers.get(":status", "")
            self._course.respond(int(status) if status.isdigit() else 0, headers.get(LOAD_RESPONSE_HEADER, ""))
            if self._response_mode == _Mode.NONE:
                # If Envoy does not send the response's body, no message follows until Envoy ends the call.
                self._course.begin()
        if self._response_mode != _Mode.NONE:
            self._usage = UsageReader(headers.get("content-type", ""))
        if message.response_headers.end_of_stream:
            self.close()
        return (NOTHING_FOR["response_headers"],)

    async def _take_response_body(self, message: wire.ProcessingRequest) -> _Answers:
        """Report the first piece, read the usage, and pass the piece on."""
        body = message.response_body
        if self._course is not None and body.body:
            self._course.begin()
        if self._usage is not None:
            self._usage.feed(body.body)
        if body.end_of_stream:
            self.close()
        if self._response_mode == _Mode.FULL_DUPLEX_STREAMED:
            return (messages.pass_on("response_body", body.body, last=body.end_of_stream),)
        return (NOTHING_FOR["response_body"],)

    async def _take_response_trailers(self, _: wire.ProcessingRequest) -> _Answers:
        """End a response."""
        self.close()
        return (NOTHING_FOR["response_trailers"],)

    _takes: Final = {
        "request_headers": _take_request_headers,
        "request_body": _take_request_body,
        "request_trailers": _take_request_trailers,
        "response_headers": _take_response_headers,
        "response_body": _take_response_body,
        "response_trailers": _take_response_trailers,
    }
