"""What one gateway takes of a model's flex queue: nothing more beyond its bounds, and nothing of a key over its own."""

import asyncio

import pytest

from tests.fakes.given_delivery import GivenDelivery
from tests.until import until
from tests.virtual_time import in_virtual_time
from tg_gateway.jobs.queue_limits import MAX_AWAY_BYTES, ModelQueue


async def test_what_is_given_back_for_a_while_is_bounded() -> None:
    queue = ModelQueue("band", "f", lambda: 1, 30.0)
    queue.away = MAX_AWAY_BYTES - 1
    assert queue.send_away(GivenDelivery(b"large", {}), 0.0)
    assert not queue.send_away(GivenDelivery(b"large", {}), 0.0)
    # The broker has it again.
    await until(lambda: queue.away == MAX_AWAY_BYTES - 1)


@pytest.mark.parametrize("service", ["text-completion", None], ids=["waits for capacity", "asked at once"])
@in_virtual_time
async def test_what_is_asked_at_once_does_not_wait_for_the_end_of_others(service: str | None) -> None:
    queue = ModelQueue("band", "f", lambda: 8, 30.0, service=service)
    with queue.ask("other"):
        queue.pause(None)
        assert not queue.is_open
        await asyncio.sleep(1)
        assert queue.is_open == (service is None)


@pytest.mark.parametrize(("asked", "seconds"), [(None, 0.5), (7.0, 7.0), (60.0, 30.0)])
@in_virtual_time
async def test_a_key_over_its_limits_gets_its_turn_later_and_others_at_once(
    asked: float | None, seconds: float
) -> None:
    queue = ModelQueue("band", "f", lambda: 1, 30.0)
    queue.bar("one", asked)
    assert (queue.measure_bar("one"), queue.measure_bar("other") > 0, queue.is_open) == (seconds, False, True)
    await asyncio.sleep(seconds)
    assert queue.measure_bar("one") <= 0
