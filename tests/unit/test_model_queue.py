"""What one gateway holds of a model's band: beyond its bounds nothing more is taken."""

import asyncio

import pytest

from tests.fakes.given_delivery import GivenDelivery
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_gateway.jobs.queue_limits import MAX_AWAY_BYTES, MAX_KEY_SHARE, PAUSED_TASK_BYTES, ModelQueue

MOST = 1_000_000


@pytest.mark.parametrize(("size", "full"), [(MOST - PAUSED_TASK_BYTES, True), (1000, False)])
async def test_what_pauses_is_bounded_in_bytes(size: int, full: bool) -> None:
    queue = ModelQueue("band", "f", lambda: 1, 30.0, MOST)
    with queue.count_paused("key", size):
        # Those behind their pause may begin all the same: else nobody would ever leave.
        assert (queue.is_full, queue.is_open) == (full, True)
    assert (queue.is_full, queue.paused.total()) == (False, 0)


async def test_what_one_key_may_hold_leaves_room_for_others() -> None:
    queue = ModelQueue("band", "f", lambda: 1, 30.0, MOST)
    with queue.count_paused("one", int(MOST * MAX_KEY_SHARE)):
        assert (queue.is_full, queue.is_crowded("one"), queue.is_crowded("other")) == (False, True, False)
    assert not queue.is_crowded("one")


async def test_what_is_given_back_for_a_while_is_bounded() -> None:
    queue = ModelQueue("band", "f", lambda: 1, 30.0, MOST)
    queue.away = MAX_AWAY_BYTES - 1
    assert queue.send_away(GivenDelivery(b"large", {}), 0.0)
    assert not queue.send_away(GivenDelivery(b"large", {}), 0.0)
    # The broker has it again.
    await until(lambda: queue.away == MAX_AWAY_BYTES - 1)


@pytest.mark.parametrize("service", ["text-completion", None], ids=["waits for capacity", "asked at once"])
@in_virtual_time
async def test_what_is_asked_at_once_does_not_wait_for_the_end_of_others(service: str | None) -> None:
    queue = ModelQueue("band", "f", lambda: 8, 30.0, MOST, service=service)
    with queue.ask("other"):
        queue.pause(None)
        assert not queue.is_open
        await asyncio.sleep(1)
        assert queue.is_open == (service is None)
