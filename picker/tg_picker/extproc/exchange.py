"""One HTTP request in Envoy -> picker: its messages in, their answers out. No network and no clock.

Envoy sends the parts of a request, then those of its response, and waits for an answer to each. How much it sends is
its processing mode: `FULL_DUPLEX_STREAMED` or `BUFFERED` for the request; the response in any mode, or not at all.
"""

from collections.abc import Iterable

from envoy.service.ext_proc.v3 import external_processor_pb2 as wire

from tg_picker.extproc.decision import Picker
from tg_picker.extproc.request_phase import RequestPhase
from tg_picker.extproc.response_phase import ResponsePhase

_ASKING = {
    "request_headers": RequestPhase.take_headers,
    "request_body": RequestPhase.take_body,
    "request_trailers": RequestPhase.take_trailers,
}
_ANSWERING = {
    "response_headers": ResponsePhase.take_headers,
    "response_body": ResponsePhase.take_body,
    "response_trailers": ResponsePhase.take_trailers,
}


class Exchange:
    """One stream of messages. `close` must be called, however it ends."""

    def __init__(self, picker: Picker) -> None:
        self._request = RequestPhase(picker)
        self._response = ResponsePhase()

    @property
    def over(self) -> bool:
        """Whether nothing may follow: the client was refused."""
        return self._request.refused

    def count_held(self) -> int:
        """Bytes of messages that it keeps in memory."""
        return self._request.count_held() + self._response.count_held()

    async def take(self, message: wire.ProcessingRequest) -> Iterable[wire.ProcessingResponse]:
        """Take Envoy's next message; return what answers it, in order.

        A message of a kind that this protocol version does not have is answered by nothing.
        """
        if message.HasField("protocol_config"):
            self._response.configure(message.protocol_config)
        kind = message.WhichOneof("request")
        if (asking := _ASKING.get(kind)) is not None:
            answered = await asking(self._request, message)
            if self._request.course is not None:
                self._response.follow(self._request.course)
                self._request.course = None
            return answered
        answering = _ANSWERING.get(kind)
        return () if answering is None else (answering(self._response, message),)

    def close(self) -> None:
        """Release the request's placement if nothing else did: the client or the endpoint left."""
        if (course := self._request.course) is not None:
            # It was decided, but the answer could not be written.
            self._response.follow(course)
        self._response.finish()
