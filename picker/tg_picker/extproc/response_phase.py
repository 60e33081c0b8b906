"""Messages about a response -> the request's course: the second half of an exchange."""

from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire

from tg_base.telemetry import LOAD_RESPONSE_HEADER
from tg_picker.extproc import answers
from tg_picker.extproc.decision import Course
from tg_picker.extproc.message_reader import read_headers, read_served
from tg_picker.extproc.usage_reader import UsageReader

_Mode = processing_mode_pb2.ProcessingMode


class ResponsePhase:
    """Passes everything on at once and tells the course what it saw."""

    def __init__(self) -> None:
        self._mode = _Mode.FULL_DUPLEX_STREAMED
        self._course: Course | None = None
        self._usage: UsageReader | None = None

    def follow(self, course: Course) -> None:
        """Tell this course how its request goes on, until `finish`."""
        self._course = course

    def configure(self, config: wire.ProtocolConfiguration) -> None:
        """Take how Envoy sends the response."""
        self._mode = config.response_body_mode

    def take_headers(self, message: wire.ProcessingRequest) -> wire.ProcessingResponse:
        """Tell which endpoint answered, with what status and load."""
        headers = read_headers(message.response_headers.headers)
        if self._course is not None:
            if address := read_served(message):
                self._course.served(address)
            status = headers.get(":status", "")
            self._course.respond(int(status) if status.isdigit() else 0, headers.get(LOAD_RESPONSE_HEADER, ""))
            if self._mode == _Mode.NONE:
                # Nothing more comes of an answer whose body is not sent, until Envoy ends the call with it.
                self._course.begin()
        if self._mode != _Mode.NONE:
            self._usage = UsageReader(headers.get("content-type", ""))
        if message.response_headers.end_of_stream:
            self.finish()
        return answers.NOTHING_FOR_RESPONSE_HEADERS

    def take_body(self, message: wire.ProcessingRequest) -> wire.ProcessingResponse:
        """Tell of the first piece, read the usage, and pass the piece on."""
        body = message.response_body
        if self._course is not None and body.body:
            self._course.begin()
        if self._usage is not None:
            self._usage.feed(body.body)
        if body.end_of_stream:
            self.finish()
        if self._mode == _Mode.FULL_DUPLEX_STREAMED:
            return answers.stream_response_body(body.body, last=body.end_of_stream)
        return answers.NOTHING_FOR_RESPONSE_BODY

    def take_trailers(self, _: wire.ProcessingRequest) -> wire.ProcessingResponse:
        """Trailers end a response."""
        self.finish()
        return answers.NOTHING_FOR_RESPONSE_TRAILERS

    def count_held(self) -> int:
        """Bytes of the answer that it keeps."""
        return 0 if self._usage is None else self._usage.held

    def finish(self) -> None:
        """Tell the course that its request is over. Once is enough, again is harmless."""
        course, self._course = self._course, None
        if course is not None:
            course.end(self._usage.read() if self._usage is not None else None)
