"""Pools that are edited under load, and clients that leave: no request lost, nothing left counted.

    python -m bench.reconfigured                        both, through the pool provider and through Envoy (10 minutes)
    python -m bench.reconfigured --through provider
    python -m bench.reconfigured --edits 50 --leavers 500

Three fake model servers are in this process. An edit makes another set of them the pool, and counts once it is in
force; meanwhile clients ask without a pause. Then clients leave: each one is cancelled after a random time. At the end
every counter of every server must be at zero.

Exit code 1: a request was lost, or something stayed counted.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp
import msgspec

from tests.fakes.pool_member import PoolMember, pool_member
from tests.free_port import free_port
from tests.picker.extproc.envoy_server import envoy
from tests.picker.extproc.test_tg_pick import tg_pick
from tg_base.llm import KeyedConnection
from tg_base.telemetry import configure_log
from tg_picker.pools.pool_watcher import PoolWatcher
from tg_picker.provider import Pool, PoolOptions
from tg_picker.provider.connection import PoolConnection
from tg_picker.status import BOARDS, InstancesStatus, read_status
from tg_schema import TextCompletionRequest, TgError

MODEL = "m"
ASKING = 8
"""Clients that ask without a pause."""
LEAVING = 16
"""Clients at a time that leave."""
MAX_STAY_SECONDS = 0.3
IN_FORCE_SECONDS = 60.0
ZERO_SECONDS = 60.0
QUICK_POLL_SECONDS = 0.01
"""Between two looks at the files of the pool provider; a process of its own keeps its 0.2 s."""
REQUEST = TextCompletionRequest(prompt="who are you", streaming=True)
FAILURES = (TgError, aiohttp.ClientError, TimeoutError)

Ask = Callable[[], Awaitable[None]]
"""One request, read to its end. Raises what it is lost by."""


@dataclass
class World:
    """What is measured.

    Attributes:
        name: through what.
        folder: where the pool's files are.
        members: the model servers.
        ask: makes one request.
        read: the addresses that are the pool now, and what is counted as running at them.
    """

    name: str
    folder: Path
    members: Sequence[PoolMember]
    ask: Ask
    read: Callable[[], Awaitable[tuple[set[str], int]]]


@dataclass
class Outcome:
    """What was seen.

    Attributes:
        answered: requests read to their end.
        lost: requests that failed, by what.
        left: clients that left in time.
        edits: in force.
        slowest: seconds until an edit was in force.
        most: that was counted at a time while clients left.
        zero_after: seconds from the last client until nothing was counted; None = never.
    """

    answered: int = 0
    left: int = 0
    edits: int = 0
    slowest: float = 0.0
    most: int = 0
    zero_after: float | None = None
    lost: Counter[str] = field(default_factory=Counter)


def write_pool(folder: Path, members: Sequence[PoolMember]) -> None:
    """Make these servers the pool, all at once."""
    rows = (f"  - {{ name: s{each.port}, address: 127.0.0.1, port: '{each.port}' }}\n" for each in members)
    draft = folder / "draft.yaml"
    draft.write_text("endpoints:\n" + "".join(rows), "utf-8")
    draft.replace(folder / "endpoints.yaml")


async def edit(world: World, edits: int, draw: Random, outcome: Outcome) -> None:
    """Make other servers the pool, again and again, while clients ask."""
    stopping = asyncio.Event()

    async def ask_on() -> None:
        while not stopping.is_set():
            await _ask(world, outcome)

    async with asyncio.TaskGroup() as clients:
        for _ in range(ASKING):
            clients.create_task(ask_on())
        last: set[str] = set()
        while outcome.edits < edits:
            chosen = draw.sample(list(world.members), draw.randint(1, len(world.members)))
            wanted = {each.address for each in chosen}
            if wanted == last:
                continue
            began = time.monotonic()
            write_pool(world.folder, chosen)
            while (await world.read())[0] != wanted:
                if (seconds := time.monotonic() - began) > IN_FORCE_SECONDS:
                    raise TimeoutError(f"an edit is not in force after {seconds:.0f} s")
                await asyncio.sleep(QUICK_POLL_SECONDS)
            outcome.slowest = max(outcome.slowest, time.monotonic() - began)
            outcome.edits, last = outcome.edits + 1, wanted
        stopping.set()


async def _ask(world: World, outcome: Outcome) -> None:
    try:
        await world.ask()
        outcome.answered += 1
    except FAILURES as error:
        outcome.lost[f"{type(error).__name__}: {error}"[:100]] += 1


async def leave(world: World, leavers: int, draw: Random, outcome: Outcome) -> None:
    """Let clients leave at any moment, then wait until nothing is counted."""
    at_once = asyncio.Semaphore(LEAVING)

    async def stay_a_while(seconds: float) -> None:
        async with at_once:
            asking = asyncio.create_task(_ask(world, outcome))
            await asyncio.wait([asking], timeout=seconds)
            if outcome.left % 100 == 0:
                outcome.most = max(outcome.most, (await world.read())[1])
            outcome.left += asking.cancel()
            await asyncio.wait([asking])

    write_pool(world.folder, world.members)
    async with asyncio.TaskGroup() as clients:
        for _ in range(leavers):
            clients.create_task(stay_a_while(MAX_STAY_SECONDS * draw.random() ** 2))
    began = time.monotonic()
    while time.monotonic() - began < ZERO_SECONDS:
        if not (await world.read())[1]:
            outcome.zero_after = time.monotonic() - began
            return
        await asyncio.sleep(QUICK_POLL_SECONDS)


@asynccontextmanager
async def through_provider(folder: Path, members: Sequence[PoolMember]) -> AsyncIterator[World]:
    """The pool provider, in this process."""
    options = PoolOptions(endpoint_files=(str(folder / "endpoints.yaml"),), scraped=False)
    connection = await KeyedConnection[PoolConnection].open(
        None, lambda key: PoolConnection("http", options.api_path, key)
    )
    watcher = PoolWatcher(options.sources(MODEL), poll=QUICK_POLL_SECONDS)
    pool = Pool(MODEL, options, connection, watcher)
    await pool._enter()  # noqa: SLF001 - what opens a pool has no option for the pause between two looks

    async def ask() -> None:
        async for _ in pool.on_request(REQUEST):
            pass

    async def read() -> tuple[set[str], int]:
        return _sum_up(read_status(BOARDS))

    try:
        yield World("pool provider", folder, members, ask, read)
    finally:
        await pool.aclose()


@asynccontextmanager
async def through_envoy(folder: Path, members: Sequence[PoolMember]) -> AsyncIterator[World]:
    """Envoy and `tg-pick`, as processes of their own; what they know is read at `/instances`."""
    (folder / "pick.toml").write_text('endpoint_files = ["endpoints.yaml"]\nfallbacks = 1\n', "utf-8")
    body = {"model": MODEL, "messages": [{"role": "user", "content": "who are you"}], "stream": True}
    port = free_port()
    async with AsyncExitStack() as stack:
        page = await stack.enter_async_context(tg_pick(folder, port))
        url = await stack.enter_async_context(envoy(folder, "duplex", port, [each.port for each in members]))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(60))
        )

        async def ask() -> None:
            async with http.post(f"{url}/v1/chat/completions", json=body) as answer:
                text = await answer.read()
                if answer.status != 200 or b"[DONE]" not in text:
                    raise aiohttp.ClientError(f"status {answer.status}: {text[-80:]!r}")

        async def read() -> tuple[set[str], int]:
            async with http.get(page) as answer:
                return _sum_up(msgspec.json.decode(await answer.read(), type=InstancesStatus))

        yield World("Envoy and tg-pick", folder, members, ask, read)


def _sum_up(status: InstancesStatus) -> tuple[set[str], int]:
    servers = status.pickers[0].pools[0].servers
    placed = sum(each.requests + each.unstarted + each.uncached_tokens for each in servers)
    return {each.address for each in servers}, placed


WAYS = {"provider": through_provider, "envoy": through_envoy}


async def measure(way: str, edits: int, leavers: int, seed: int) -> Outcome:
    """One run."""
    draw, outcome = Random(seed), Outcome()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with AsyncExitStack() as stack:
            members = [await stack.enter_async_context(pool_member()) for _ in range(3)]
            write_pool(folder, members)
            world = await stack.enter_async_context(WAYS[way](folder, members))
            await edit(world, edits, draw, outcome)
            answered, lost = outcome.answered, sum(outcome.lost.values())
            print(
                f"{world.name}: {outcome.edits} edits, the slowest in force after {outcome.slowest:.2f} s; "
                f"{answered} requests answered meanwhile, {lost} lost {dict(outcome.lost) if lost else ''}",
                flush=True,
            )
            await leave(world, leavers, draw, outcome)
            zero = "never" if outcome.zero_after is None else f"after {outcome.zero_after:.2f} s"
            print(
                f"{world.name}: {outcome.left} of {leavers} clients left, {outcome.answered - answered} were answered "
                f"first, {sum(outcome.lost.values()) - lost} lost; up to {outcome.most} requests and tokens were "
                f"counted, all counters at zero {zero}",
                flush=True,
            )
    return outcome


def main() -> None:
    """Measure, print, and fail if something was lost or stayed counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--through", choices=[*WAYS], action="append")
    parser.add_argument("--edits", type=int, default=1_000)
    parser.add_argument("--leavers", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    configure_log("json", "error")
    # Clients that leave are no defect of the fake servers.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    outcomes = [asyncio.run(measure(way, asked.edits, asked.leavers, asked.seed)) for way in asked.through or [*WAYS]]
    sys.exit(any(each.lost or each.zero_after is None for each in outcomes))


if __name__ == "__main__":
    main()
