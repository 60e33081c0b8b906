"""Records of a log -> the events of a stream that is kept: the same for every reader, wherever it begins."""

import asyncio
import re
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.kept_log import KeptLog
from tests.unit.test_recorded_responses import MIXED, RECORDS, Record, write
from tg_gateway.dialects import (
    Answer,
    ExpiredStream,
    KeptAnswer,
    KeptAnswers,
    KeptStreams,
    RecordedEnd,
    StreamedAnswer,
    Writer,
)
from tg_gateway.dialects.anthropic.writers import StreamWriter
from tg_gateway.dialects.chat import ChatStreamWriter
from tg_gateway.dialects.native.services import SERVICES, EventWriter
from tg_gateway.mounts import load_mounts
from tg_schema import TgError, encode
from tg_schema.errors import BadRequest, BusError, NotFound, Unavailable

STREAMS = KeptStreams({mount.door: mount.dialect.restore for mount in load_mounts()}, lambda: 1e9)
EVENT = re.compile(rb"id: ([0-9]+)\n.*?\n\n", re.DOTALL)


def make_writer(door: str) -> Writer[Record]:
    """As the door makes it for a request."""
    made: dict[str, Writer[Record]] = {
        "native": EventWriter(SERVICES["text-completion"]),
        "openai": ChatStreamWriter("m", include_usage=True),
        "anthropic": StreamWriter("m", "r"),
    }
    return made[door]


def is_refused(door: str, records: list[Record]) -> bool:
    """Whether the door's writer takes one of these records for a contradiction."""
    writer = make_writer(door)
    try:
        for record in records:
            writer.write(record)
    except TgError:
        return True
    return False


async def gather(answer: Answer | StreamedAnswer) -> list[bytes]:
    """The numbered events of an answer, whose numbers have no gap."""
    told = b""
    if isinstance(answer, Answer):
        assert answer.status == 204
        return []
    with suppress(TgError):
        async for part in answer.parts:
            told += part
    found = list(EVENT.finditer(told))
    numbers = [int(each[1]) for each in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
    return [each[0] for each in found]


@given(
    st.sampled_from(["native", "openai", "anthropic"]),
    st.lists(MIXED, max_size=8),
    st.lists(st.integers(0, 900), max_size=6),
    st.integers(-1, 12),
    st.booleans(),
)
def test_any_reader_gets_the_same_from_any_position(
    door: str, records: list[Record], places: list[int], after: int, whole: bool
) -> None:
    async def run() -> None:
        writer = make_writer(door)
        background = STREAMS.keep(writer, door, "10m")
        told = [*records, RECORDS[-1]] if whole else records
        lines, body = write(told, None if whole else Unavailable("away"))
        refused = is_refused(door, told)
        end = KeptAnswer(background.head, body, "ended", cut=False)
        cuts = [0, *sorted(min(place, len(lines)) for place in places), len(lines)]
        parts = [lines[start:stop] for start, stop in pairwise(cuts) if start != stop]
        first = background.answer(KeptLog(background.head, [lines], end))
        events = await gather(first)
        log = KeptLog(background.head, parts, end)
        # A record that a writer refuses ends every reading, but has no event.
        if after >= len(events) - refused:
            with pytest.raises(TgError if refused else BadRequest):
                await STREAMS.read(log, background.name, after)
        else:
            assert await gather(await STREAMS.read(log, background.name, after)) == events[after + 1 :]

    asyncio.run(run())


@pytest.mark.parametrize("head", [{"door": "of tomorrow", "form": {}}, {"door": "openai", "form": {"new": 1}}])
async def test_what_another_version_began_is_refused_in_words(head: dict[str, object]) -> None:
    name = STREAMS.keep(make_writer("openai"), "openai", "10m").name
    log = KeptLog(encode(head), [], KeptAnswer(b"", encode(RecordedEnd(0)), "ended", cut=False))
    with pytest.raises(Unavailable, match="through another one"):
        await STREAMS.read(log, name, -1)


async def test_a_form_is_that_of_its_door() -> None:
    with pytest.raises(BadRequest, match="no stream of this protocol"):
        STREAMS.keep(make_writer("openai"), "lmi", "10m")


@pytest.mark.parametrize("door", ["native", "openai", "anthropic"])
@pytest.mark.parametrize("lost", [NotFound("erased"), BusError("away")])
async def test_a_whole_answer_needs_no_end_of_its_log(door: str, lost: TgError) -> None:
    lines, _ = write(list(RECORDS), None)
    last = lines.rstrip(b"\n").rfind(b"\n") + 1
    for kept in (lines, lines[:last]):
        background = STREAMS.keep(make_writer(door), door, "10m")
        answer = background.answer(KeptLog(background.head, [kept], lost))
        assert isinstance(answer, StreamedAnswer)
        # Only of an answer that is not whole its reader is told so.
        with pytest.raises(type(lost)) if kept != lines else nullcontext():
            assert [part async for part in answer.parts]


async def test_who_reads_no_part_leaves_the_log() -> None:
    lines, _ = write(list(RECORDS), None)
    background = STREAMS.keep(make_writer("native"), "native", "10m")
    log = KeptLog(background.head, [lines], BusError("away"))
    answer = await STREAMS.read(log, background.name, -1)
    assert isinstance(answer, StreamedAnswer)
    assert not log.left
    # As the gateway answers a HEAD.
    await answer.parts.aclose()
    assert log.left


async def test_a_stream_that_runs_can_be_read_and_stopped_after_its_time() -> None:
    now = [1e9]
    streams = KeptStreams({mount.door: mount.dialect.restore for mount in load_mounts()}, lambda: now[0])
    background = streams.keep(make_writer("native"), "native", "90s")
    lines, body = write(list(RECORDS), None)
    running = KeptLog(background.head, [lines], KeptAnswer(background.head, body, "ended", cut=False))
    now[0] += 100
    assert await gather(await streams.read(running, background.name, -1))
    await streams.cancel(running, background.name)
    for ended in (replace(running, outcome="ended"), KeptAnswers()):
        for asked in (streams.read(ended, background.name, -1), streams.cancel(ended, background.name)):
            with pytest.raises(ExpiredStream):
                await asked


@pytest.mark.parametrize(
    ("door", "field"), [("native", "sampling.max_tokens"), ("openai", "max_tokens"), ("anthropic", "max_tokens")]
)
async def test_an_error_names_a_field_as_its_door_does(door: str, field: str) -> None:
    background = STREAMS.keep(make_writer(door), door, "10m")
    _, body = write([], BadRequest("sampling.max_tokens must be at most 5"))
    (told,) = await gather(background.answer(KeptLog(background.head, [], KeptAnswer(b"", body, "ended", cut=False))))
    assert f'"{field} must be at most 5'.encode() in told
