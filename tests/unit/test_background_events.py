"""What a log has of a response -> its events: also where the gateway that wrote it has died within one."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tests.flow.responses_stream import read_events
from tg_gateway.dialects import KeptAnswer, KeptAnswers, server_sent_event
from tg_gateway.dialects.kept_answers import NOTHING_KEPT
from tg_gateway.dialects.responses.background_response import stream_events

HEAD = b'{"response":{"id":"resp_1","status":"in_progress"},"items":[],"streamed":true}'


class _Kept(KeptAnswers):
    """Has one answer, in these parts."""

    read, cancel, erase = NOTHING_KEPT.read, NOTHING_KEPT.cancel, NOTHING_KEPT.erase

    def __init__(self, *parts: bytes) -> None:
        self._parts = parts

    @override
    async def follow(self, name: str, head: bytes | None = None) -> AsyncGenerator[bytes | KeptAnswer, None]:
        for part in self._parts:
            yield part
        yield KeptAnswer(HEAD, b"", "died", cut=False)


async def test_an_event_that_is_not_whole_is_not_told() -> None:
    first = server_sent_event(b'{"type":"response.created","sequence_number":0}', b"response.created")
    second = server_sent_event(b'{"type":"response.output_text.delta","sequence_number":1}', b"e")
    streamed = stream_events(_Kept(first, second[:-9]), "resp_1", -1, {})
    events = read_events(b"".join([data async for data in streamed.parts]))
    assert [(event["type"], event["sequence_number"]) for event in events] == [
        ("response.created", 0),
        ("response.failed", 1),
    ]
