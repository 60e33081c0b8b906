"""LMTP's kept streams: wherever their log is cut and from whatever item on, a reader gets the same items once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doors.test_lmtp_writers import END, make_batch, make_token, read
from tests.fakes.held_bus import HeldBus
from tests.fakes.kept_log import KeptLog
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_doors.lmtp.item_writers import StreamForm
from tg_doors.lmtp.resumable import name_stream, resume
from tg_doors.lmtp.stream_writer import StreamWriter
from tg_gateway.dialects import (
    Background,
    Keep,
    KeptAnswer,
    KeptAnswers,
    StreamedAnswer,
    Waiting,
    Writer,
    join_output,
)
from tg_gateway.jobs import JobLogs, JobStore
from tg_gateway.jobs.claim import Claim
from tg_gateway.jobs.log import CANCEL, NameTaken, is_late, kind_of, label_end
from tg_gateway.jobs.record_writer import RecordWriter
from tg_gateway.jobs.writer import JobWriter
from tg_schema import TextCompletionResponse, TgError, encode
from tg_schema.errors import NotFound
from tg_schema.topics import Topics

RECORDS = [
    *(TextCompletionResponse(response="é", tokens=(make_token(number),)) for number in range(3, 8)),
    TextCompletionResponse(response="", tokens=(END,), finish_reason="stop", end_of_stream=True),
]


async def read_items(log: KeptLog, after: int) -> tuple[list[dict[str, object]], str]:
    """The items, and the error that ended them."""
    data, error = b"", ""
    batch = make_batch()
    try:
        async for part in resume(log, "k", after, lambda form: form.make_writer(1, batch, typed=True)):
            data += part
    except TgError as failed:
        error = failed.type
    return read(data + batch.take()), error


@given(st.sampled_from(["ids", "text"]), st.lists(st.integers(0, 700), max_size=6), st.integers(0, 8), st.booleans())
def test_any_cut_and_any_beginning(kind: str, places: list[int], after: int, ended: bool) -> None:
    form = StreamForm("ids" if kind == "ids" else "text", 100, 1)
    writer: Writer[TextCompletionResponse] = RecordWriter(TextCompletionResponse, keeps_whole=False)
    data = b"".join(join_output(writer.write(record)) for record in RECORDS)
    if not ended:
        data = data[: data.index(b"\n", len(data) // 2) + 5]
    cuts = sorted(min(place, len(data)) for place in places)
    parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    end = KeptAnswer(b"", b"", "died", cut=False)
    every, _ = asyncio.run(read_items(KeptLog(encode(form), [data], end), 0))
    items, error = asyncio.run(read_items(KeptLog(encode(form), parts, end), after))
    assert items == every[after:]
    assert [each["seq"] for each in items] == list(range(after + 1, len(every) + 1))
    if ended:
        assert error == ("" if items else "bad-request")
    else:
        assert error == "unavailable"


async def test_no_items_are_read_of_an_answer_that_takes_the_key_meanwhile() -> None:
    log = KeptLog(encode(StreamForm("ids", 100, 1)), [], KeptAnswer(b"", b"", "died", cut=False))

    def make_writer(form: StreamForm) -> StreamWriter:
        log.head = encode(StreamForm("text", 100, 1))
        return form.make_writer(1, make_batch(), typed=True)

    with pytest.raises(NotFound, match="request_key: no stream of this key is kept"):
        await anext(resume(log, "k", 0, make_writer))


def test_names_tell_api_keys_and_words_apart() -> None:
    names = {name_stream(key, word) for key, word in ((None, "ab"), ("a", "b"), ("a", "bb"), ("ab", "b"), ("b", "a"))}
    assert len(names) == 5


def make_kept(name: str) -> Background:
    def answer(_: KeptAnswers) -> StreamedAnswer:
        raise AssertionError

    return Background(name, b"head", keeps_parts=True, answer=answer, joins=lambda _: False, chosen="word")


@asynccontextmanager
async def open_log(store: JobStore, name: str) -> AsyncIterator[JobWriter]:
    """Begin an answer and make it."""
    await store.put("k", make_kept(name), Waiting(60.0), await store.find_replaced("k", name))
    claim = Claim(store.logs, store.logs.owner("k"), name)
    await claim.load()
    await claim.take()
    async with claim.write(make_kept(name)) as writer:
        yield writer


async def test_who_began_a_name_first_does_not_erase_what_another_has_begun_there_anew() -> None:
    bus = MemoryBus()
    first, second = (JobStore(JobLogs(bus, Topics(), key_answers=1)) for _ in range(2))
    async with open_log(first, "n") as writer:
        writer.freed = True
        await writer.end(b"late", "ended")
        claim = writer.claim
    async with open_log(second, "n") as writer:
        with pytest.raises(NameTaken):
            await first.find_replaced("k", "n")
        # The bus has stored the first end twice.
        await bus.append(Topics().kept("n"), b"late", label_end("ended", claim=claim, frees=True))
        await writer.end(b"whole", "ended")
    # Behind an end nothing counts but a head, and only where the name is free.
    await bus.append(Topics().kept("n"), b"", label_end("died"))
    await first.keep("k", Keep("other", lambda: b""))
    kept = await second.of("k").read("n")
    assert (kept.end, kept.outcome) == (b"whole", "ended")
    await second.keep("k", Keep("another", lambda: b""))
    with pytest.raises(NotFound):
        await first.of("k").read("n")
    await bus.aclose()


async def test_who_was_taken_for_dead_does_not_erase_what_another_has_begun_there_anew() -> None:
    bus = MemoryBus()
    first, second = (JobStore(JobLogs(bus, Topics(), key_answers=1)) for _ in range(2))
    async with open_log(first, "n") as writer:
        # A reader has found nothing but the head, and silence.
        log = await second.logs.load(second.logs.owner("k"), "n")
        await second.logs.declare("n", log.label_loss())
        async with open_log(second, "n") as other:
            await other.end(b"whole", "ended")
        # It was only suspended.
        await writer.end(b"late", "ended")
    await first.keep("k", Keep("other", lambda: b""))
    kept = await second.of("k").read("n")
    assert (kept.end, kept.outcome) == (b"whole", "ended")
    await bus.aclose()


@pytest.mark.parametrize("cancels", [False, True])
async def test_what_ends_one_answer_too_late_does_not_end_the_next_one_of_its_name(cancels: bool) -> None:
    bus = MemoryBus()
    held = HeldBus(bus)
    store, reader = JobStore(JobLogs(bus, Topics())), JobStore(JobLogs(held, Topics(), silence=0.0))
    async with open_log(store, "n") as writer:
        kept = reader.of("k")
        ending = asyncio.create_task(kept.cancel("n") if cancels else kept.read("n"))
        await until(lambda: held.appending == 1)
        writer.freed = True
        await writer.end(b"", "ended")
    async with open_log(store, "n") as writer:
        held.open.set()
        await ending
        assert (await store.of("k").read("n")).outcome == "running"
        with pytest.raises(NotFound):
            await anext(store.of("k").follow("n", b"another head"))
        assert (await store.of("k").cancel("n", b"another head")).outcome == "running"
        notes = [entry for entry in await bus.read(Topics().kept("n")) if kind_of(entry) == CANCEL]
        assert [is_late(entry, writer.claim) for entry in notes] == [True] * cancels
    await bus.aclose()
