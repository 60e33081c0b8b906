"""Records of a log -> the events of a response in the background: the same for every reader, however the log is cut."""

import asyncio
from collections import deque
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.fakes.kept_log import KeptLog
from tests.flow.responses_stream import check_stream, read_events
from tests.unit.test_responses_request import read
from tg_gateway.dialects import BEGUN_LINES, KeptAnswer, RecordedEnd, join_output
from tg_gateway.dialects.responses.background_response import BackgroundHead, show_response, stream_events
from tg_gateway.dialects.responses.long_fields import MAX_COPIED_BYTES
from tg_gateway.dialects.responses.response_draft import make_draft
from tg_gateway.jobs.record_writer import RecordWriter
from tg_schema import TextCompletionResponse, ToolCallDelta, decode, encode
from tg_schema.answer_collector import MAX_ANSWER_BYTES
from tg_schema.errors import ProtocolError, TgError, TooLarge, Unavailable

Record = TextCompletionResponse
LONG = "é" * MAX_COPIED_BYTES
RECORDS = [
    *(Record(reasoning=piece) for piece in ("Hm", ", so.")),
    *(Record(response=piece, model="m-2") for piece in ("Hé", "l", "lo\n")),
    *(
        Record(tool_calls=(ToolCallDelta(0, "c0" if name else None, name, "{}"[at]),))
        for at, name in ((0, "f"), (1, ""))
    ),
    Record(response="", in_token=10, out_token=4, finish_reason="stop", end_of_stream=True),
]


def write(records: Iterable[Record], failure: TgError | None = None) -> tuple[bytes, bytes]:
    """The lines of these records, and the end of a log that has them."""
    writer = RecordWriter(Record, keeps_whole=True)
    lines = b"".join(join_output(writer.write(record)) for record in records)
    return lines, writer.finish(7.0, failure)


def tell(head: BackgroundHead, parts: list[bytes], end: KeptAnswer, after: int = -1) -> bytes:
    """What one reader gets."""

    async def gather() -> bytes:
        return b"".join(
            [part async for part in stream_events(KeptLog(end.head, parts, end), "r", head, after, {}).parts]
        )

    return asyncio.run(gather())


@given(st.lists(st.integers(0, 900), max_size=6), st.integers(-1, 40), st.integers(0, len(RECORDS)), st.booleans())
def test_any_cut_and_any_beginning(places: list[int], after: int, count: int, begun: bool) -> None:
    draft = make_draft(read(background=True, instructions=LONG, metadata={"a": "b"}), "m")
    head = BackgroundHead(Raw(join_output(draft.encode())), (), streamed=True, form=draft.form)
    head = decode(BackgroundHead, encode(head))
    lines, body = write(RECORDS[:count], None if count == len(RECORDS) else Unavailable("away"))
    end = KeptAnswer(encode(head), body, "ended", cut=False)
    whole = tell(head, [BEGUN_LINES, lines], end)
    final = check_stream(read_events(whole))
    assert (final["instructions"], final["metadata"]) == (LONG, {"a": "b"})
    assert (final["status"], final["completed_at"]) == (("failed", None), ("completed", 7))[count == len(RECORDS)]
    assert encode(final) == encode(decode(dict, show_response(end, head)))
    cuts = [0, *sorted(min(place, len(lines)) for place in places), len(lines)]
    parts = [BEGUN_LINES] * begun + [lines[start:stop] or b"" for start, stop in pairwise(cuts)]
    told = read_events(tell(head, parts, end, after))
    if begun or count:
        assert told == read_events(whole)[after + 1 :]


PIECES = st.builds(
    ToolCallDelta,
    st.integers(0, 2),
    st.sampled_from([None, "c"]),
    st.sampled_from([None, "f"]),
    st.sampled_from(["", "{", "}", "{}"]),
    st.sampled_from([None, None, "sealed"]),
)
MIXED = st.builds(
    Record,
    reasoning=st.sampled_from([None, None, "h"]),
    signature=st.sampled_from([None, None, "s"]),
    response=st.sampled_from([None, "t"]),
    tool_calls=st.lists(PIECES, max_size=2).map(tuple),
)


@given(st.lists(MIXED, max_size=8), st.booleans())
def test_a_response_is_that_of_its_events_in_every_order(records: list[Record], encrypted: bool) -> None:
    """Also where the records contradict each other, so that it has failed."""
    include = ["reasoning.encrypted_content"] * encrypted
    draft = make_draft(read(background=True, include=include), "m")
    head = BackgroundHead(Raw(join_output(draft.encode())), (), streamed=True, form=draft.form)
    lines, body = write([*records, RECORDS[-1]])
    end = KeptAnswer(encode(head), body, "ended", cut=False)
    events = read_events(tell(head, [BEGUN_LINES, lines], end))
    draft.ended_at = 7
    try:
        for record in [*records, RECORDS[-1]]:
            deque(draft.add(record), 0)
        deque(draft.end(), 0)
    except ProtocolError as error:
        draft.close(error)
    final = events[-1]["response"]
    assert final == decode(dict, join_output(draft.encode())) == decode(dict, show_response(end, head))
    assert events[-1]["type"] == f"response.{final['status']}"
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == final["output"][: len(done)]
    assert len(done) == len(final["output"]) or final["status"] == "failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_an_answer_that_is_too_large_fails_at_its_end() -> None:
    # The last records are fewer than what is joined at a time, so that only the end has the sum.
    end = decode(RecordedEnd, write([Record(response="x" * 15_000)] * (MAX_ANSWER_BYTES // 15_000 + 1))[1])
    assert end.error is not None
    assert (end.error.type, end.records) == ("too-large", ())


def test_the_end_has_the_error_of_an_answer_that_was_too_large_before() -> None:
    writer = RecordWriter(Record, keeps_whole=True)
    with pytest.raises(TooLarge) as refused:
        writer.write(Record(response="x" * MAX_ANSWER_BYTES))
    assert decode(RecordedEnd, writer.finish(1.0, refused.value)) == RecordedEnd(1, refused.value.record)


def test_a_record_that_is_not_whole_is_not_told() -> None:
    """Its gateway has died within it."""
    draft = make_draft(read(background=True), "m")
    head = BackgroundHead(Raw(join_output(draft.encode())), (), streamed=True, form=draft.form)
    lines, _ = write(RECORDS[:4])
    events = read_events(tell(head, [lines[:-9]], KeptAnswer(encode(head), b"", "died", cut=False)))
    assert [event["delta"] for event in events if event["type"].endswith("delta")] == ["Hm", ", so.", "Hé"]
    assert events[-1]["response"]["status"] == "failed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_response_has_its_whole_in_its_end_and_a_stream_only_where_it_is_asked_for() -> None:
    _, body = write(RECORDS)
    assert len(decode(RecordedEnd, body).records) < len(RECORDS)
    writer = RecordWriter(Record, keeps_whole=False)
    writer.write(RECORDS[0])
    assert decode(RecordedEnd, writer.finish(1.0, None)).records == ()
