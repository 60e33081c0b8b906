"""Two gateways over a broker: each shows its own streams and the processors of all, and stops what it asked for."""

import asyncio

import pytest

from tests.connected.pipeline import Pipeline
from tests.fakes.live_openai import LiveOpenAi
from tg_client import TgClient
from tg_schema.errors import Cancelled, NotFound
from tg_schema.live import LiveDocument

pytestmark = [pytest.mark.connected, pytest.mark.timeout(120)]


async def see(client: TgClient, flow: str, streams: int) -> LiveDocument:
    """The document as soon as the gateway has so many streams and knows the processor; others share the broker."""
    async with client.follow_live() as documents:
        async for document in documents:
            queue = document.queues.get(f"{flow}/text-completion")
            if len(document.streams) == streams and queue and queue.running == 2:
                return document
    raise AssertionError("the gateway has ended the events")


async def test_a_gateway_stops_its_own_stream_at_the_provider(line: Pipeline, live_model: LiveOpenAi) -> None:
    await line.start("text-completion")
    parts = [await line.start("gateway") for _ in range(2)]
    async with TgClient(parts[0].url, retries=0) as first, TgClient(parts[1].url, retries=0) as second:

        async def read(client: TgClient, prompt: str) -> None:
            async with client.flow(line.flow).text_completion_stream(prompt=prompt) as chunks:
                async for _ in chunks:
                    pass

        asking = [asyncio.create_task(read(client, name)) for client, name in ((first, "one"), (second, "two"))]
        seen = [await see(client, line.flow, 1) for client in (first, second)]
        assert len({document.gateway for document in seen}) == 2
        (one,), (two,) = (document.streams for document in seen)
        assert one != two
        running = [document.queues[f"{line.flow}/text-completion"] for document in seen]
        assert [(queue.running, queue.processors) for queue in running if queue] == [(2, 1)] * 2
        with pytest.raises(NotFound, match="another gateway's"):
            await first.stop_stream(two)
        await first.stop_stream(one)
        (stopped,), (other,) = live_model.of("one"), live_model.of("two")
        await live_model.until(stopped.left.is_set, within=1)
        sent = stopped.sent
        with pytest.raises(Cancelled, match="an operator has stopped"):
            await asking[0]
        going = other.sent
        await live_model.until(lambda: other.sent > going + 1, within=30)
        assert stopped.sent == sent
        assert not asking[1].done()
        asking[1].cancel()
        await asyncio.wait(asking)
