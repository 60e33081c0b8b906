"""Whether a request that may have been delivered before is begun: only on a fresh answer to a question of its own."""

import asyncio
from collections.abc import Callable

import msgspec
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.virtual_time import VirtualTimeLoop, in_virtual_time
from tg_base.protocol import FrameKind, RequestHeaders, Route, StreamKey
from tg_base.server.body_receiver import BodyReceiver
from tg_base.server.request_task import RequestTask
from tg_base.server.responder import PlainResponder
from tg_base.server.slots import Slot, Slots
from tg_schema import TEXT_COMPLETION, TextCompletionRequest
from tg_schema.response import Response

ROUTE = Route("f", TEXT_COMPLETION, "persistent://t/n/requests", "non-persistent://t/n/responses")
DOUBTFUL = RequestHeaders(StreamKey("s", 1), "non-persistent://t/n/inbox", fresh=False)
QUICK_SECONDS = 0.05


class Questions(PlainResponder):
    """A requestor that is asked, and answers when the test wants."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[int] = asyncio.Queue()

    @override
    def open(self) -> None:
        pass

    @override
    def accept(self, opening: Callable[[], bool]) -> None:
        pass

    @override
    def signal(self, kind: FrameKind, question: int = 0) -> None:
        if kind == "confirm":
            self.asked.put_nowait(question)
        assert kind != "fetch", "this request is not large"

    @override
    async def send(self, record: Response) -> None:
        pass

    @override
    def close(self) -> None:
        pass


async def begun(
    patience: float, call: RequestHeaders = DOUBTFUL, waited: float = 0.0
) -> tuple[RequestTask, Questions, CountingLlm]:
    """Work that waits for an answer; waited: seconds since its request came."""
    llm, reply, slots = CountingLlm(), Questions(), Slots(1)
    made: asyncio.Future[RequestTask] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        slot = Slot(slots, ROUTE)
        came = asyncio.get_running_loop().time() - waited
        work = RequestTask(llm, ROUTE, call, slot, came=came, patience=patience, bodies=BodyReceiver(), processor="p")
        made.set_result(work)
        await work.run(TextCompletionRequest(prompt="1", streaming=True), reply)

    task = asyncio.create_task(run())
    work = await made
    assert work.task is task
    return work, reply, llm


@in_virtual_time
async def test_a_late_answer_or_one_to_another_question_begins_nothing() -> None:
    work, reply, llm = await begun(patience=QUICK_SECONDS)
    first = await reply.asked.get()
    await asyncio.sleep(2 * QUICK_SECONDS)
    work.confirm(first)
    work.confirm(first + 1_000_000)
    second = await reply.asked.get()
    assert second != first
    work.confirm(first)
    assert not llm.requests
    work.stop()
    await work.task
    assert not llm.requests


@in_virtual_time
async def test_what_was_confirmed_before_its_process_was_suspended_is_asked_about_again() -> None:
    work, reply, llm = await begun(patience=QUICK_SECONDS)
    work.confirm(await reply.asked.get())
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    # Its requestor has asked another one meanwhile.
    loop.suspend(2 * QUICK_SECONDS)
    await reply.asked.get()
    assert not llm.requests
    work.stop()
    await work.task


async def test_what_was_fresh_before_its_process_was_suspended_is_asked_about() -> None:
    fresh = msgspec.structs.replace(DOUBTFUL, fresh=True)
    work, reply, llm = await begun(patience=60.0, call=fresh, waited=61.0)
    question = await reply.asked.get()
    assert not llm.requests
    work.confirm(question)
    await work.task
    assert len(llm.requests) == 1
    work, reply, llm = await begun(patience=60.0, call=fresh, waited=59.0)
    await work.task
    assert (reply.asked.qsize(), len(llm.requests)) == (0, 1)
