"""Messages about a request -> decision -> their answers: the first half of an exchange."""

from collections.abc import Iterable, Iterator
from itertools import chain

from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire

from tg_picker.extproc import answers
from tg_picker.extproc.asked import Asked
from tg_picker.extproc.decision import Course, Directed, Picker, Refused
from tg_picker.extproc.message_reader import read_headers, read_subset

MAX_BODY_BYTES = 32 * 1024 * 1024

_Mode = processing_mode_pb2.ProcessingMode
_READABLE = {_Mode.NONE, _Mode.BUFFERED, _Mode.FULL_DUPLEX_STREAMED}
_WRONG_MODE = Refused(
    500,
    "unsupported-processing-mode",
    "this picker needs the whole body: set request_body_mode to FULL_DUPLEX_STREAMED or BUFFERED in Envoy's filter",
)
_TOO_LARGE = Refused(413, "too-large", f"the body exceeds {MAX_BODY_BYTES} bytes; send less")
_HEADER_COST = 64
"""Bytes that a header takes beside its own."""
_NO_ANSWER: tuple[wire.ProcessingResponse, ...] = ()


class RequestPhase:
    """Collects the body, asks the picker once, and says where the request goes.

    Attributes:
        course: of the directed request; None = not decided, or refused.
        refused: whether the client got a refusal, which ends the exchange.
    """

    def __init__(self, picker: Picker) -> None:
        self._picker = picker
        self._mode = _Mode.FULL_DUPLEX_STREAMED
        self._is_unread = False
        self._headers: dict[str, str] = {}
        self._subset: frozenset[str] | None = None
        self._body: bytes | bytearray = bytearray()
        self._complete = False
        self.course: Course | None = None
        self.refused = False

    async def take_headers(self, message: wire.ProcessingRequest) -> Iterable[wire.ProcessingResponse]:
        """Decide at once if there is no body. In duplex mode nothing may be answered before the body is complete."""
        if self._complete:
            return _NO_ANSWER
        if message.HasField("protocol_config"):
            self._mode = message.protocol_config.request_body_mode
            self._is_unread = message.protocol_config.response_body_mode == _Mode.NONE
        self._headers = read_headers(message.request_headers.headers)
        self._subset = read_subset(message)
        if self._mode not in _READABLE:
            return self._refuse(_WRONG_MODE)
        if message.request_headers.end_of_stream or self._mode == _Mode.NONE:
            decision = await self._decide(None)
            if isinstance(decision, Refused):
                return self._refuse(decision)
            return [answers.direct_headers(decision)]
        return _NO_ANSWER if self._mode == _Mode.FULL_DUPLEX_STREAMED else [answers.NOTHING_FOR_HEADERS]

    async def take_body(self, message: wire.ProcessingRequest) -> Iterable[wire.ProcessingResponse]:
        """Collect; decide when it is complete."""
        if self._complete:
            # Envoy 1.35 and later may send the last piece of a large body twice (envoyproxy/envoy#46237).
            return _NO_ANSWER
        body = message.request_body
        self._body += body.body
        if len(self._body) > MAX_BODY_BYTES:
            return self._refuse(_TOO_LARGE)
        if body.end_of_stream or self._mode != _Mode.FULL_DUPLEX_STREAMED:
            return await self._direct(last=True)
        return _NO_ANSWER

    async def take_trailers(self, _: wire.ProcessingRequest) -> Iterable[wire.ProcessingResponse]:
        """Trailers end a body whose pieces did not say so."""
        directing = _NO_ANSWER if self._complete else await self._direct(last=False)
        return directing if self.refused else chain(directing, (answers.NOTHING_FOR_TRAILERS,))

    def count_held(self) -> int:
        """Bytes of headers and body that it keeps. The body is kept until its last piece is on the way back."""
        return len(self._body) + sum(len(name) + len(value) + _HEADER_COST for name, value in self._headers.items())

    async def _direct(self, *, last: bool) -> Iterable[wire.ProcessingResponse]:
        # Kept while it waits for its decision, to be counted.
        self._body = body = bytes(self._body)
        decision = await self._decide(body)
        if isinstance(decision, Refused):
            return self._refuse(decision)
        if self._mode != _Mode.FULL_DUPLEX_STREAMED:
            self._body = b""
            return (answers.direct_buffered_body(decision),)
        return self._pass_on(decision, body if decision.body is None else decision.body, last=last)

    def _pass_on(self, directed: Directed, body: bytes, *, last: bool) -> Iterator[wire.ProcessingResponse]:
        yield answers.direct_headers(directed)
        yield from answers.stream_request_body(body, last=last)
        self._body = b""

    async def _decide(self, body: bytes | None) -> Directed | Refused:
        self._complete = True
        decision = await self._picker.decide(Asked(self._headers, body, self._subset, self._is_unread))
        if isinstance(decision, Directed):
            self.course = decision.course
        return decision

    def _refuse(self, refused: Refused) -> Iterable[wire.ProcessingResponse]:
        self._complete = self.refused = True
        return [answers.refuse(refused, self._headers.get(":path", ""))]
