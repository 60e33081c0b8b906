"""Responses that are kept over a real broker: they outlive the gateway that was asked, and any other one reads them."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI

from tests.connected.pipeline import Part, Pipeline
from tests.fakes.live_openai import MODEL, LiveOpenAi

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]


def sdk(gateway: Part) -> AsyncOpenAI:
    """A client of one gateway."""
    return AsyncOpenAI(base_url=f"{gateway.url}v1", api_key="any", max_retries=0, timeout=60)


async def test_another_gateway_reads_what_a_dead_one_kept(live_model: LiveOpenAi, line: Pipeline) -> None:
    live_model.finish.set()
    first, second, _ = await asyncio.gather(line.start("gateway"), line.start("gateway"), line.start("text-completion"))
    async with sdk(first) as one, sdk(second) as other:
        async with one.responses.stream(model=MODEL, input="go on", store=True) as stream:
            events = [event.type async for event in stream]
            said = await stream.get_final_response()
        first.process.kill()
        await first.stopped(10)

        found = await other.responses.retrieve(said.id)
        assert found.output_text == said.output_text
        again = await other.responses.retrieve(said.id, stream=True, starting_after=1)
        assert [event.sequence_number async for event in again] == list(range(2, len(events)))
        following = await other.responses.create(
            model=MODEL, input="and then?", previous_response_id=said.id, store=True
        )
        assert following.previous_response_id == said.id
        items = [item async for item in other.responses.input_items.list(following.id)]
        assert len(items) == 3

        await other.responses.delete(said.id)
        with pytest.raises(openai.NotFoundError):
            await other.responses.retrieve(said.id)
        assert (await other.responses.retrieve(following.id)).output_text == following.output_text
