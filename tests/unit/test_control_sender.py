"""Cancels of a requestor: who is told what, and how often."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.fakes.recording_bus import RecordingBus
from tg_base.bus.memory import MemoryBus
from tg_base.client.control_sender import CANCEL_REPEAT_SECONDS, MAX_WITHDRAWN, ControlSender
from tg_base.protocol import CONTROL, Cancel, StreamKey
from tg_schema import decode
from tg_schema.topics import Topics

TOPICS = Topics()
DEADLINE = 60.0


class Sending:
    """A requestor's control messages, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self._wire = RecordingBus(MemoryBus())
        self.controls = ControlSender(self._wire, TOPICS, lambda: self.now)

    async def told(self, processor: str) -> list[Cancel]:
        """The cancels that were sent to a processor since the last call."""
        await self.controls.flush(10.0)
        topic = TOPICS.control(processor)
        controls = [decode(CONTROL, body) for to, body, _ in self._wire.published if to == topic]
        self._wire.published.clear()
        return [control for control in controls if isinstance(control, Cancel)]

    async def aclose(self) -> None:
        self.controls.close()
        await self._wire.aclose()


@asynccontextmanager
async def sending() -> AsyncIterator[Sending]:
    it = Sending()
    try:
        yield it
    finally:
        await it.aclose()


def keys(number: int) -> Sequence[StreamKey]:
    return [StreamKey(f"stream-{index}", 1) for index in range(number)]


async def test_a_new_processor_that_asks_about_one_cancelled_attempt_is_told_of_all() -> None:
    first, *others = left = keys(10)
    async with sending() as it:
        for key in left:
            it.controls.cancel_queued((), key, DEADLINE)
        it.now = 10.0
        it.controls.cancel("new", first)
        assert await it.told("new") == [
            Cancel((first,), CANCEL_REPEAT_SECONDS),
            Cancel((first, *others), DEADLINE - it.now),
        ]
        # It knows them now; another one does not.
        it.controls.cancel("new", others[0])
        assert await it.told("new") == [Cancel((others[0],), CANCEL_REPEAT_SECONDS)]
        it.controls.cancel("newer", others[0])
        assert [len(cancel.streams) for cancel in await it.told("newer")] == [1, len(left)]


async def test_a_processor_that_was_told_of_a_cancel_is_not_told_again() -> None:
    first, second = keys(2)
    async with sending() as it:
        it.controls.cancel_queued(("old",), first, DEADLINE)
        it.controls.cancel_queued(("old",), second, DEADLINE)
        assert [cancel.streams for cancel in await it.told("old")] == [(first,), (second,)]
        it.controls.cancel("old", first)
        assert await it.told("old") == [Cancel((first,), CANCEL_REPEAT_SECONDS)]


async def test_an_answer_that_was_left_brings_no_cancels_of_others() -> None:
    running, queued = keys(2)
    async with sending() as it:
        it.controls.cancel_queued((), queued, DEADLINE)
        it.controls.cancel("new", running)
        assert await it.told("new") == [Cancel((running,), CANCEL_REPEAT_SECONDS)]


async def test_cancels_are_forgotten_at_their_deadline_and_above_a_bound() -> None:
    async with sending() as it:
        for key in keys(MAX_WITHDRAWN + 1):
            it.controls.cancel_queued((), key, DEADLINE)
        dropped, *_, newest = keys(MAX_WITHDRAWN + 1)
        it.controls.cancel("new", dropped)
        it.controls.cancel("new", newest)
        assert [len(cancel.streams) for cancel in await it.told("new")] == [1, 1, MAX_WITHDRAWN]
        it.now = DEADLINE + 1
        it.controls.sweep()
        it.controls.cancel("newer", newest)
        assert [len(cancel.streams) for cancel in await it.told("newer")] == [1]
