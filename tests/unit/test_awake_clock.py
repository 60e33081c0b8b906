"""What a suspended process overslept is nobody's silence, whatever order things happen in when it wakes."""

import asyncio
import time

import pytest

from tg_base.protocol import AwakeClock

STALL_SECONDS = 0.5


async def test_what_comes_before_the_sleeper_wakes_has_the_time_at_which_he_should_have() -> None:
    clock, times = AwakeClock(), []

    async def sleeper() -> None:
        await clock.sleep(0.01)
        times.append(clock())

    began = clock()
    task = asyncio.create_task(sleeper())
    await asyncio.sleep(0)
    time.sleep(STALL_SECONDS)  # noqa: ASYNC251 - the stall is the point
    times.append(clock())
    await task
    in_the_stall, awake = times
    assert in_the_stall - began == pytest.approx(0.01, abs=0.005)
    assert awake == pytest.approx(in_the_stall, abs=STALL_SECONDS / 5)
