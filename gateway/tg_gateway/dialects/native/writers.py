"""Records of one answer -> one body, or WebSocket messages; events over HTTP are written in `dialect`."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from tg_gateway.dialects import WholeWriter, Writer, text_frame
from tg_gateway.dialects.native import envelope
from tg_gateway.dialects.native.services import NativeService
from tg_schema import TgError
from tg_schema.response import Response


class BodyWriter(WholeWriter[Any]):
    """The whole answer as one JSON object."""

    def __init__(self, service: NativeService, record: type[Any]) -> None:
        super().__init__(record)
        self._whole = service.whole

    @override
    def body(self, records: Sequence[Response]) -> bytes:
        return self._whole(records)


class MessageWriter(Writer[Any]):
    """WebSocket messages, each event in an envelope."""

    def __init__(self, service: NativeService, name: envelope.Id) -> None:
        self._event = service.event
        self._opened = envelope.opening(name)

    @override
    def write(self, record: Response) -> bytes:
        return text_frame(envelope.response(self._opened, self._event(record), last=record.last))

    @override
    def fail(self, error: TgError) -> bytes:
        return text_frame(envelope.failure(self._opened, error, error.type))


class WholeMessageWriter(BodyWriter):
    """The whole answer in one WebSocket message."""

    def __init__(self, service: NativeService, record: type[Any], name: envelope.Id) -> None:
        super().__init__(service, record)
        self._opened = envelope.opening(name)

    @override
    def body(self, records: Sequence[Response]) -> bytes:
        return text_frame(envelope.response(self._opened, super().body(records), last=True))
