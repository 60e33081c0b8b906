"""Envoy's messages while all servers are busy: who waits, who is served first, and what the others are told."""

import asyncio
from dataclasses import dataclass, field
from random import Random

import msgspec

from tests.picker.core.test_accounting import NOTHING, counters
from tests.picker.extproc.test_exchange import body, headers
from tests.picker.page.shown_pool import PartlyReachable, make_picker
from tg_picker.core import Endpoint, QueueLimits, Scheduler
from tg_picker.extproc import wire
from tg_picker.extproc.exchange import Exchange
from tg_picker.extproc.instance_picker import InstancePicker
from tg_picker.pools import Catalogue, Pool, PoolView, UseCase

SERVERS = tuple(Endpoint(f"10.0.0.{at}:8000", f"s{at}") for at in range(2))
CATALOGUE = Catalogue(
    {"p": Pool("p", {}, ())},
    {name: UseCase(name, (("p", 1),), True, priority) for name, priority in (("low", 0), ("middle", 5), ("high", 9))},
)


@dataclass
class World:
    """A picker of two servers that take one request each."""

    order: list[str] = field(default_factory=list)
    max_seconds: float = 30.0

    def __post_init__(self) -> None:
        clock = asyncio.get_running_loop().time
        self.scheduler = Scheduler(random=Random(0))
        limits = QueueLimits(max_waiting=3, max_requests=1, max_seconds=self.max_seconds)
        self.pools = PartlyReachable(self.scheduler, PoolView(CATALOGUE, {"p": SERVERS}))
        picker = make_picker(self.pools, clock, limits)
        self.dispatcher, self.picker = picker.dispatcher, InstancePicker(picker)

    async def ask(self, model: str) -> tuple[Exchange, wire.ProcessingResponse]:
        """A request with all its messages, as far as the picker's decision."""
        exchange = Exchange(self.picker)
        try:
            await exchange.take(headers())
            (first, *_) = await exchange.take(body(msgspec.json.encode({"model": model, "messages": []})))
        except asyncio.CancelledError:
            exchange.close()
            raise
        self.order.append(model)
        return exchange, first

    async def asked(self, *models: str) -> "list[asyncio.Task[tuple[Exchange, wire.ProcessingResponse]]]":
        """Requests that have had their turn."""
        tasks = [asyncio.create_task(self.ask(model)) for model in models]
        await asyncio.sleep(0)
        return tasks

    @property
    def waiting(self) -> dict[int, int]:
        return {priority: requests for _, priority, requests, *_ in self.dispatcher.queues}


def refusal(response: wire.ProcessingResponse) -> tuple[int, dict[str, str], str]:
    """Status, headers and message of an answer in place of a server's."""
    answer = response.immediate_response
    told = {each.header.key: each.header.raw_value.decode() for each in answer.headers.set_headers}
    return answer.status.code, told, msgspec.json.decode(answer.body)["error"]["message"]


async def test_bands_a_full_queue_and_a_client_that_leaves() -> None:
    world = World()
    running = [await world.ask("low"), await world.ask("low")]
    low, middle = await world.asked("low", "middle")
    gone, full = await world.asked("middle", "low")
    assert world.waiting == {5: 2, 0: 1}
    _, response = await full
    status, told, message = refusal(response)
    assert (status, told["x-llm-d-request-dropped-reason"]) == (429, "queue-full")
    assert int(told["retry-after"]) >= 1
    assert "no more requests may wait" in message
    gone.cancel()
    (high,) = await world.asked("high")
    assert world.waiting == {9: 1, 5: 1, 0: 1}
    world.order.clear()
    for task in (high, middle, low):
        running.pop(0)[0].close()
        running.append(await task)
    assert world.order == ["high", "middle", "low"]
    for exchange, response in running:
        assert response.HasField("request_headers")
        exchange.close()
    assert gone.cancelled()
    assert world.waiting == {}
    assert [counters(world.scheduler.server(each)) for each in SERVERS] == [NOTHING] * 2


async def test_a_pool_that_empties_holds_those_that_wait_and_then_is_503() -> None:
    world = World(max_seconds=0.2)
    running = [await world.ask("low"), await world.ask("low")]
    (waits,) = await world.asked("low")
    world.pools.watcher.view = PoolView(CATALOGUE, {"p": ()})
    world.scheduler.retain(())
    assert world.waiting == {0: 1}
    _, response = await waits
    status, told, _ = refusal(response)
    assert (status, told["x-llm-d-request-dropped-reason"]) == (503, "rejected-no-endpoints")
    for exchange, _ in running:
        exchange.close()
