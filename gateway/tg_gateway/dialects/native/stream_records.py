"""The log of a stream that is kept -> its records, with the time of each part, for a replay.

From the records, a door's events and a model's answer can be made again.
"""

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Call, StreamedAnswer, StreamReader, Writer, server_sent_event
from tg_gateway.dialects.native.services import EventWriter, service_of
from tg_schema import TEXT_COMPLETION, Error, decode


class _Last(msgspec.Struct, frozen=True):
    """The field that only the last record of a service has."""

    end_of_stream: bool | None = False
    end_of_dialog: bool | None = False
    error: Error | None = None

    @property
    def last(self) -> bool:
        return bool(self.end_of_stream or self.end_of_dialog) or self.error is not None


class _RecordReader(StreamReader):
    @override
    def write_line(self, line: bytes) -> bytes:
        self.over = decode(_Last, line).last
        return self.cutter.add(server_sent_event(line))


async def read_records(call: Call) -> StreamedAnswer:
    """All records of the stream that the path names, those to come too, each as the data of an event.

    The first record of each part that was stored has `at`: when, in seconds since 1970. A failure is the last event.

    Raises:
        TgError: as `KeptStreams.find`.
    """
    name = call.path["stream"]
    await call.streams.find(call.kept, name)
    # A failure has the same form whatever the service.
    reader = _RecordReader(EventWriter(service_of(TEXT_COMPLETION)), name)
    return reader.answer(reader.follow(call.kept), Writer.headers)
