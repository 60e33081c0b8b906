"""Whose turn it is: slots that are free, reserved for what is being confirmed, or owed to another queue."""

import asyncio

from tests.virtual_time import in_virtual_time
from tg_base.server.slots import Slot, Slots

FIRST, SECOND = "first", "second"


async def settled(task: "asyncio.Task[None]") -> bool:
    """Whether it is done when everything that is ready has had its turn."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_no_more_is_asked_for_than_what_is_reserved_leaves_free() -> None:
    slots = Slots(2)
    first, second = Slot(slots, FIRST), Slot(slots, FIRST)
    first.reserve()
    await slots.wait(FIRST)
    with first, second:
        second.reserve()
        waiting = asyncio.create_task(slots.wait(SECOND))
        assert not await settled(waiting)
        assert await first.take()
        assert not await settled(waiting)
    assert await settled(waiting)


@in_virtual_time
async def test_what_is_never_confirmed_reserves_a_slot_for_a_time_only() -> None:
    slots = Slots(1)
    slot = Slot(slots, FIRST)
    slot.reserve()
    async with asyncio.timeout(60):
        await slots.wait(SECOND)
    assert await slot.take()


@in_virtual_time
async def test_two_queues_whose_requests_are_confirmed_together_take_turns() -> None:
    slots, served = Slots(1), []
    for _ in range(4):
        both = {queue: Slot(slots, queue) for queue in (FIRST, SECOND)}
        for slot in both.values():
            slot.reserve()
        # In the same order each time: so a link brings them, and so the first would always win.
        taken = await asyncio.gather(*(slot.take() for slot in both.values()))
        served += [queue for queue, won in zip(both, taken, strict=True) if won]
        for slot in both.values():
            with slot:
                pass
    assert served == [FIRST, SECOND, FIRST, SECOND]
