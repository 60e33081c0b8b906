"""Times at which something is late: they come in order, once, and what is cancelled keeps nothing."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import uvloop

from tests.virtual_time import in_virtual_time
from tg_base.runtime import Alarm
from tg_base.runtime.stream_parts import MIN_CANCELLED_ALARMS


class Owner:
    def ring(self) -> None:
        raise AssertionError("its alarm is cancelled")


@in_virtual_time
async def test_each_rings_once_at_its_time_in_whatever_order_they_are_set() -> None:
    loop, rung = asyncio.get_running_loop(), list[tuple[int, float]]()
    for seconds in (30, 10, 20, 10, 40):
        Alarm(loop.time() + seconds, lambda seconds=seconds: rung.append((seconds, loop.time())))  # type: ignore[misc]
    await asyncio.sleep(15)
    Alarm(loop.time() + 1, lambda: rung.append((16, loop.time())))
    await asyncio.sleep(35)
    assert [name for name, _ in rung] == [10, 10, 16, 20, 30, 40]
    assert all(abs(at - name) < 0.01 for name, at in rung)


@in_virtual_time
async def test_a_cancelled_one_never_rings_and_keeps_nothing() -> None:
    loop, owner = asyncio.get_running_loop(), Owner()
    gc.disable()
    try:
        alarm = Alarm(loop.time() + 1, owner.ring)
        alarm.cancel()
        alarm.cancel()
        gone = weakref.ref(owner)
        del owner
        assert gone() is None
    finally:
        gc.enable()
    await asyncio.sleep(2)


@in_virtual_time
async def test_cancelled_ones_do_not_gather_until_their_time() -> None:
    due, rung = asyncio.get_running_loop().time() + 300, list[int]()
    kept = [Alarm(due, partial(rung.append, number)) for number in range(10)]
    for _ in range(50):
        for alarm in [Alarm(due, Owner().ring) for _ in range(MIN_CANCELLED_ALARMS)]:
            alarm.cancel()
    assert kept[0]._alarms is not None
    assert len(kept[0]._alarms._heap) < 3 * MIN_CANCELLED_ALARMS
    await asyncio.sleep(301)
    assert sorted(rung) == list(range(10))


@in_virtual_time
async def test_one_that_fails_keeps_no_other_from_ringing() -> None:
    loop, failed, rung = asyncio.get_running_loop(), list[object](), list[str]()
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    Alarm(loop.time() + 1, Owner().ring)
    Alarm(loop.time() + 1, lambda: rung.append("the other"))
    await asyncio.sleep(2)
    assert rung == ["the other"]
    assert isinstance(failed[0], AssertionError)


@in_virtual_time
async def test_one_that_is_due_in_the_same_turn_can_still_be_cancelled() -> None:
    due, rung = asyncio.get_running_loop().time() + 1, list[Alarm]()
    pair = list[Alarm]()

    def ring(number: int) -> None:
        rung.append(pair[number])
        pair[1 - number].cancel()

    pair += [Alarm(due, partial(ring, number)) for number in range(2)]
    await asyncio.sleep(2)
    assert len(rung) == 1


on_each_loop = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


@on_each_loop
def test_none_comes_before_its_time(run: Callable[[Coroutine[Any, Any, object]], object]) -> None:
    """Who is called too early asks again; on uvloop each of these did so up to a hundred times."""
    late = list[float]()

    async def ring_often() -> None:
        loop, all_rung = asyncio.get_running_loop(), asyncio.Event()

        def ring(due: float) -> None:
            late.append(loop.time() - due)
            if len(late) == 100:
                all_rung.set()

        for number in range(100):
            due = loop.time() + 0.01 + number * 0.0003
            Alarm(due, partial(ring, due))
        await all_rung.wait()

    run(ring_often())
    assert min(late) >= 0


@on_each_loop
def test_a_loop_that_has_ended_is_kept_by_none(run: Callable[[Coroutine[Any, Any, object]], object]) -> None:
    async def end_early() -> None:
        loop = asyncio.get_running_loop()
        loops.append(weakref.ref(loop))
        Alarm(loop.time() + 30, bool).cancel()
        Alarm(loop.time() + 40, loop.time)

    loops = list[weakref.ref[asyncio.AbstractEventLoop]]()
    run(end_early())
    gc.collect()
    assert loops[0]() is None
