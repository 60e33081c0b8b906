"""Processes whose clocks are ten minutes apart, either way: every request is answered, and paid once."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.connected.live_streams import STREAMS, asked, live_streams
from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi, told

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

TEN_MINUTES = 600
SKEWED_SERVE = Path(__file__).with_name("skewed_serve.py")


async def test_clocks_ten_minutes_apart(live_model: LiveOpenAi, line: Pipeline) -> None:
    """A message carries its publisher's clock, so a processor behind is what a gateway ahead is, and the reverse."""
    skews = (TEN_MINUTES, -TEN_MINUTES)
    flows = {skew: f"{line.flow}{skew}" for skew in skews}
    gateway, *_ = await asyncio.gather(
        line.start("gateway", "--config", line.configuration(*flows.values())),
        *(
            line.start(
                "text-completion",
                *("--config", line.configuration(flow)),
                program=(sys.executable, SKEWED_SERVE, str(skew)),
            )
            for skew, flow in flows.items()
        ),
    )
    live_model.finish.set()
    for skew, flow in flows.items():
        told(await asked(gateway.url, flow, f"first {skew}", 60), whole=True)
        async with live_streams(gateway.url, flow, prefix=f"{skew} s, ") as live:
            await live.over(30)
            assert not live.failed
        assert len(live.whole) == STREAMS
        assert all(len(live_model.of(stream.prompt)) == 1 for stream in live.streams)
