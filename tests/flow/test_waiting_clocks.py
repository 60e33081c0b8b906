"""Responses that wait, before gateways whose clocks are minutes apart: their time is over when it is, for all."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from tests.flow.background_asking import poll
from tests.flow.open_gateway import CONFIG
from tests.flow.waiting_gateways import ASKED_BEFORE, DEADLINE, NO_PAUSE, ask, open_gateways
from tests.until import until
from tg_gateway.access import Limits
from tg_gateway.jobs.log import JobLog

TEN_MINUTES = 600.0


@pytest.mark.parametrize("ahead", [TEN_MINUTES, -TEN_MINUTES])
async def test_what_a_gateway_with_a_wrong_clock_has_put_waits_as_long_as_it_may(ahead: float) -> None:
    async with open_gateways() as it:
        one, other = await it.open_gateway(ahead=ahead), await it.open_gateway(ahead=-ahead)
        work = await it.occupy(one)
        made = await ask(one, "made", extra_body={"max_wait": 60})
        until = JobLog(await it.bus.read(CONFIG.topics.kept(made.id))).waits or 0.0
        assert -1 < until - time.time() - 60 <= 1
        # Whoever looks, it is not over yet, and whoever has its message makes it.
        assert {(await client.responses.retrieve(made.id)).status for client in (one, other)} == {"queued"}
        await it.gateways[0].aclose()
        await asyncio.gather(work, return_exceptions=True)
        it.llm.steps.release()
        assert (await poll(other, made.id)).status == "completed"


async def test_it_waits_no_longer_than_that() -> None:
    async with open_gateways() as it:
        one, other = await it.open_gateway(ahead=TEN_MINUTES), await it.open_gateway(ahead=-TEN_MINUTES)
        # Of another gateway: it ends with its own.
        work = await it.occupy(other)
        made = await ask(one, "made", extra_body={"max_wait": 0.5})
        await it.gateways[0].aclose()
        # Not twenty minutes later: the test has seconds.
        assert "expired" in (await poll(other, made.id)).error.message
        it.llm.steps.release()
        await work


@pytest.mark.parametrize("ahead", [TEN_MINUTES, -TEN_MINUTES])
async def test_a_pause_after_a_lost_attempt_ends_when_it_should(ahead: float) -> None:
    async with open_gateways() as it:
        limits = Limits(silence=0.2, attempt_pause=1.0)
        one, other = await it.open_gateway(limits=limits, ahead=ahead), await it.open_gateway(limits=limits)
        work = await it.occupy(one)
        made = await ask(one, "made")
        topic = CONFIG.topics.kept(made.id)
        await it.bus.append(topic, b"", ASKED_BEFORE)
        it.llm.steps.release()
        await work
        # One of them finds that it is lost, and says until when it pauses.
        position = (await it.bus.read(topic))[1].position
        async with asyncio.timeout(DEADLINE), it.bus.follow(topic, position) as entries:
            async for entry in entries:
                if "resumes" in entry.properties:
                    break
        log = JobLog(await it.bus.read(topic))
        assert -1 < log.resumes - time.time() <= 1
        it.llm.steps.release()
        assert (await poll(other, made.id)).status == "completed"


async def test_a_clock_that_differs_is_told_in_the_log() -> None:
    async with open_gateways() as it:
        with capture_logs() as told:
            await it.open_gateway(limits=NO_PAUSE)
            await it.open_gateway(limits=NO_PAUSE, ahead=TEN_MINUTES)
            # With the second announcement.
            await until(lambda: "clock.differs" in [line["event"] for line in told])
        (line,) = [line for line in told if line["event"] == "clock.differs"]
        assert abs(line["seconds_ahead"] - TEN_MINUTES) < 1
