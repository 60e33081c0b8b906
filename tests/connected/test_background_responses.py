"""Answers in the background over a real broker: any gateway follows and cancels them, and ends a dead one's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from aiohttp import ClientSession
from openai import AsyncOpenAI

from tests.connected.pipeline import Part, Pipeline
from tests.connected.test_kept_responses import sdk
from tests.doors.open_lmtp import Lmtp
from tests.fakes.live_openai import MODEL, Generation, LiveOpenAi, told
from tests.flow.background_asking import begin, client_of, gather, gather_until_cut, poll, until_told
from tests.flow.open_gateway import ON_ANY_PORT
from tests.flow.responses_stream import check_stream
from tests.pulsar_server import PulsarServer
from tests.until import TICK_SECONDS
from tg_base.bus import open_bus
from tg_base.client import Requestor
from tg_base.config import Config, TextCompletionConfig
from tg_gateway.access import Limits
from tg_gateway.app import Gateway

pytestmark = [pytest.mark.connected, pytest.mark.timeout(300)]

SILENCE = 3.0
"""Seconds, in place of 15, after which a dead gateway's responses are said to have failed."""
READS = Limits(silence=SILENCE, all_background=0)
"""Those of a gateway that makes no response, and so goes on with none."""

FULL = "backlog is full"


@asynccontextmanager
async def impatient_gateway(line: Pipeline) -> AsyncIterator[AsyncOpenAI]:
    """A client of a second gateway, in this process: another one for the broker, and for the first."""
    config = Config(flows={line.flow: {"text-completion": TextCompletionConfig(model="live")}})
    routes = config.routes("text-completion")
    queues = tuple(route.request for route in routes)
    async with (
        open_bus(line.bus) as bus,
        Requestor(bus, config.topics, queues=queues) as requestor,
        Gateway(ON_ANY_PORT, requestor, routes, limits=READS) as gateway,
        client_of(gateway) as client,
    ):
        yield client


async def ask(client: AsyncOpenAI, prompt: str, **fields: Any) -> Any:
    """Begin a response in the background."""
    return await client.responses.create(model=MODEL, input=prompt, background=True, **fields)


async def generating(model: LiveOpenAi, prompt: str) -> Generation:
    """The model's side of it, once it has said something."""
    await model.until(lambda: any(each.sent > 0 for each in model.of(prompt)), 30)
    [generation] = model.of(prompt)
    return generation


async def test_any_gateway_follows_cancels_and_ends_what_a_dead_one_left(
    live_model: LiveOpenAi, line: Pipeline
) -> None:
    first, _ = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    async with sdk(first) as one, impatient_gateway(line) as other:
        await followed(live_model, one, other)
        await cancelled(live_model, one, other)
        await deleted(live_model, one, other)
        await resumed(live_model, one, other)
        await killed(live_model, first, one, other)


async def followed(model: LiveOpenAi, one: AsyncOpenAI, other: AsyncOpenAI) -> None:
    """The client that asked leaves; another gateway's clients read all of it, live."""
    quiet = await ask(one, "poll")
    async with await ask(one, "follow", stream=True) as stream:
        name = await begin(stream)
    follower = await other.responses.retrieve(name, stream=True)
    await until_told(follower)
    assert not (await generating(model, "follow")).over
    running = {(await client.responses.retrieve(quiet.id)).status for client in (one, other)}
    assert running <= {"queued", "in_progress"}
    model.finish.set()
    rest = await gather(follower)
    events = await gather(await one.responses.retrieve(name, stream=True))
    final = check_stream(events)
    assert rest == events[-len(rest) :]
    told(final["output"][0]["content"][0]["text"], whole=True)
    for after in (0, 3, len(events) - 2):
        assert (
            await gather(await other.responses.retrieve(name, stream=True, starting_after=after)) == events[after + 1 :]
        )
    assert (await poll(other, quiet.id)).to_dict() == (await poll(one, quiet.id)).to_dict()
    model.finish.clear()


async def cancelled(model: LiveOpenAi, one: AsyncOpenAI, other: AsyncOpenAI) -> None:
    """A cancel through another gateway stops the model: when it is answered, nothing more is said."""
    stream = await ask(one, "cancel", stream=True)
    name, generation = await begin(stream), await generating(model, "cancel")
    ended = await other.responses.cancel(name)
    await asyncio.wait_for(generation.left.wait(), 30)
    said = generation.sent
    events = await gather(stream)
    assert events[-1]["response"] == ended.to_dict()
    assert (await one.responses.cancel(name)).to_dict() == ended.to_dict()
    assert ended.status == "cancelled"
    assert generation.sent == said


async def deleted(model: LiveOpenAi, one: AsyncOpenAI, other: AsyncOpenAI) -> None:
    """So does a deletion."""
    made = await ask(one, "delete")
    generation = await generating(model, "delete")
    await other.responses.delete(made.id)
    await asyncio.wait_for(generation.left.wait(), 30)


@asynccontextmanager
async def lmtp(client: AsyncOpenAI) -> AsyncIterator[Lmtp]:
    """A socket of the same gateway, which is told kinds of errors."""
    async with ClientSession() as http, http.ws_connect(str(client.base_url.join("/lmtp"))) as socket:
        conversation = Lmtp(socket)
        await conversation.send("HELLO", accept=["ERRORS"])
        await conversation.item()
        yield conversation


async def generate(client: Lmtp, key: str) -> list[dict[str, Any]]:
    """The first items of a stream that can be resumed."""
    turns = [{"role": "user", "content": key}]
    await client.send("GENERATE", stream_id=1, model=MODEL, mode="text", prompt=turns, request_key=key)
    return [*(await client.read())[1], *(await client.read())[1]]


async def resumed(model: LiveOpenAi, one: AsyncOpenAI, other: AsyncOpenAI) -> None:
    """An LMTP stream goes on without its socket; another gateway's socket reads on behind the last item."""
    async with lmtp(one) as client:
        begun = await generate(client, "resume")
    async with lmtp(other) as client:
        turns = [{"role": "user", "content": "again"}]
        await client.send("GENERATE", stream_id=1, model=MODEL, mode="text", prompt=turns, request_key="resume")
        (refused,) = await client.stream(1)
        assert (refused["code"], "kept already" in refused["error"]) == ("bad-request", True)
        await client.send("RESUME", stream_id=7, request_key="resume", after_seq=len(begun))
        first = (await client.read())[1]
        assert not (await generating(model, "resume")).over
        model.finish.set()
        items = [*begun, *first, *await client.stream(7)]
        assert [each["seq"] for each in items] == list(range(1, len(items) + 1))
        told("".join(each["text"] for each in items), whole=True)
        await client.send("RESUME", stream_id=8, request_key="resume")
        assert [each["text"] for each in await client.stream(8)] == [each["text"] for each in items]
    model.finish.clear()


async def killed(model: LiveOpenAi, first: Part, one: AsyncOpenAI, other: AsyncOpenAI) -> None:
    """The gateway dies: its model stops, and the other gateway says what became of the response."""
    async with await ask(one, "die", stream=True) as stream:
        name, generation = await begin(stream), await generating(model, "die")
        await until_told(stream)
    async with lmtp(one) as client:
        begun = await generate(client, "cut off")
        # So much is in the log.
        async with lmtp(other) as reader:
            await reader.send("RESUME", stream_id=1, request_key="cut off")
            await reader.read()
        first.process.kill()
        await first.stopped(10)
    async with lmtp(other) as client:
        await client.send("RESUME", stream_id=1, request_key="cut off")
        *items, ended = await client.stream(1)
        assert items[0] == begun[0]
        assert (ended["code"], ended["retryable"]) == ("unavailable", True)
    events = await gather(await other.responses.retrieve(name, stream=True))
    final = check_stream(events)
    assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
    assert any(event["type"] == "response.output_text.delta" for event in events)
    assert (await other.responses.retrieve(name)).to_dict() == final
    assert (await other.responses.cancel(name)).to_dict() == final
    # Its processor has let it run a while for somebody who might go on.
    await asyncio.wait_for(generation.left.wait(), 60)


@pytest.mark.parametrize("policy", ["producer_exception", "producer_request_hold"])
async def test_a_log_over_its_quota_is_named_to_who_follows(
    live_model: LiveOpenAi, line: Pipeline, pulsar: PulsarServer, policy: str
) -> None:
    """The gateway that makes it is killed; the log is full then, and the other gateway can end it no more."""
    first, _ = await asyncio.gather(line.start("gateway"), line.start("text-completion"))
    async with ClientSession() as http, impatient_gateway(line) as other, sdk(first) as one:
        async with await ask(one, "follow", stream=True) as stream:
            name = await begin(stream)
        await generating(live_model, "follow")
        topic = Config().topics.kept(name).replace("://", "/")
        url = f"{pulsar.admin_url}/admin/v2/{topic}/backlogQuota"
        quota = {"limitSize": 100, "limitTime": -1, "policy": policy}
        async with http.post(url, params={"backlogQuotaType": "destination_storage"}, json=quota) as answer:
            assert answer.status == 204, await answer.text()
        first.process.kill()
        await first.stopped(10)
        events = await gather_until_cut(await other.responses.retrieve(name, stream=True))
        assert (events[-1]["type"], events[-1]["code"]) == ("error", "bus")
        assert FULL in events[-1]["message"]
        with pytest.raises(openai.InternalServerError, match=FULL):
            await other.responses.retrieve(name)
        async with http.delete(url, params={"backlogQuotaType": "destination_storage"}) as answer:
            assert answer.status == 204, await answer.text()
        await until_lifted(other, name)
        assert (await poll(other, name)).status == "failed"


async def until_lifted(client: AsyncOpenAI, name: str) -> None:
    """Wait until the response's log takes records again: the broker lifts a quota a moment after it has said so."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.responses.retrieve(name)
            except openai.InternalServerError as err:
                if FULL not in err.message:
                    raise
                await asyncio.sleep(TICK_SECONDS)
            else:
                return
