"""How much may be on its way at once."""

import asyncio

import pytest

from tg_base.bus.core.send_window import SendWindow
from tg_schema.errors import BusError


async def test_messages_and_bytes_are_both_bounded() -> None:
    window = SendWindow(2, 100)
    window.enter(10)
    assert not window.full
    window.enter(10)
    assert window.full
    window.leave(10)
    window.enter(95)
    assert window.full


async def test_an_empty_window_takes_a_message_of_any_size() -> None:
    window = SendWindow(2, 100)
    assert not window.full
    window.enter(1000)
    assert window.full
    window.leave(1000)
    assert not window.full


async def test_who_waits_enters_in_line() -> None:
    window, entered = SendWindow(1, 100), []

    async def enter(number: int) -> None:
        await window.enter_in_turn(1)
        entered.append(number)

    window.enter(1)
    tasks = [asyncio.create_task(enter(number)) for number in range(3)]
    for count in range(4):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert entered == list(range(count))
        window.leave(1)
    await asyncio.gather(*tasks)


async def test_one_large_message_that_leaves_lets_several_small_ones_in() -> None:
    window = SendWindow(10, 100)
    window.enter(100)
    tasks = [asyncio.create_task(window.enter_in_turn(10)) for _ in range(5)]
    await asyncio.sleep(0)
    window.leave(100)
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert window.in_flight == 5


async def test_a_waiter_that_is_cancelled_lets_the_next_one_in() -> None:
    window = SendWindow(1, 100)
    window.enter(1)
    leaver, stayer = (asyncio.create_task(window.enter_in_turn(1)) for _ in range(2))
    await asyncio.sleep(0)
    window.leave(1)
    leaver.cancel()
    async with asyncio.timeout(5):
        await stayer


async def test_closing_fails_everybody() -> None:
    window = SendWindow(1, 100)
    window.enter(1)
    waiting = asyncio.create_task(window.enter_in_turn(1))
    await asyncio.sleep(0)
    window.close(BusError("closed"))
    for attempt in (waiting, window.enter_in_turn(1)):
        with pytest.raises(BusError):
            await attempt
