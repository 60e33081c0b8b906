"""Our sum of usage beside the books of the provider that was asked: no call may be missing, none may count twice.

    python -m bench.account                      100,000 requests (about a quarter of an hour)
    python -m bench.account --requests 2000      a look

Over a real Pulsar: two gateways, two processors, prompt, agent and usage, each a process. Requests come by every door,
as prompts, agents, lists and background responses. Some are left by their clients, some are cut off or refused by the
provider, and every few seconds one of the processes is killed and started again. At the end each request is compared
with the provider's books (`tests/fakes/billing_openai.py`): calls, exact counts, estimates. Exit code 1 if a call is
missing or counts twice, if a counted token differs, or if the estimates are more than 10 % off. What a processor had
just begun when it was killed is told apart: nobody knows whether its provider got it.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.load_client import DOORS, make_request
from tests.connected.pipeline import Part, Pipeline
from tests.fakes.billing_openai import Billed, BillingOpenAi
from tests.pulsar_server import PulsarServer
from tg_base.bus import Delivery, open_bus
from tg_schema import decode
from tg_schema.topics import Topics
from tg_schema.usage_record import UsageRecord

CONFIGURATION = """
[gateway]
drain = 2
request_timeout = 60
[models.bench]
provider = "openai"
queue = 10000
options = {{ base_url = "{provider}", key_variable = "" }}
[flows.default]
text-completion = {{ model = "bench" }}
prompt = {{}}
agent = {{ calling = "text" }}
usage = {{ database = "{folder}/usage.db" }}
[prompts.templates.say]
prompt = "{{{{ text }}}}"
"""
KINDS = (*DOORS, "agent", "prompt", "list", "whole", "background")
"""How a request comes: by a door, or as more than one plain stream."""
FAULTS = ("none", "cut", "refuse")
REFUSED = 0.04
"""Share of requests that the provider refuses at first."""
SOCKETS = {"websocket", "lmtp"}
PARTS = ("gateway", "gateway", "text-completion", "text-completion", "prompt", "agent", "usage")
FILLER = "They walked over the old bridge and talked about the weather of the last few days. "
ID = re.compile(r"[a-z]+\d+x")
LAST_SECONDS = 1.0
"""Around the death of a processor. If nobody has heard yet of a call that it began then, nobody will."""
MOST_OFF = 0.1
"""Of the estimated tokens, in all."""
READY = 300.0
"""Seconds in which a part has to serve, however busy the machine is."""


@dataclass
class Sums:
    """Calls and tokens of one side."""

    calls: int = 0
    prompt: int = 0
    answer: int = 0

    def add(self, prompt: int, answer: int) -> None:
        """One more call."""
        self.calls, self.prompt, self.answer = self.calls + 1, self.prompt + prompt, self.answer + answer


@dataclass
class Verdict:
    """What differs.

    Attributes:
        missing: calls that the provider has and we have not, by request.
        double: the other way round.
        unheard: calls that a processor had begun in its last moment, of which nobody had heard yet when it was killed.
        unseen: calls that were left, or whose processor was killed, before their provider had looked at them.
        wrong: requests that are counted, and not as the provider counts them.
        exact, estimated: of requests without and with estimates: ours, and the provider's.
    """

    missing: Counter[str] = field(default_factory=Counter)
    double: Counter[str] = field(default_factory=Counter)
    unheard: int = 0
    unseen: int = 0
    wrong: list[str] = field(default_factory=list)
    exact: tuple[Sums, Sums] = field(default_factory=lambda: (Sums(), Sums()))
    estimated: tuple[Sums, Sums] = field(default_factory=lambda: (Sums(), Sums()))

    @property
    def off(self) -> tuple[float, float]:
        """By how much the estimates of prompts and of answers differ, as a share."""
        ours, theirs = self.estimated
        pairs = (ours.prompt, theirs.prompt), (ours.answer, theirs.answer)
        prompts, answers = (abs(mine - billed) / max(billed, 1) for mine, billed in pairs)
        return prompts, answers

    @property
    def holds(self) -> bool:
        """Whether the account is closed."""
        return not (self.missing or self.double or self.wrong) and max(self.off) <= MOST_OFF


def judge(ours: Iterable[UsageRecord], books: dict[str, list[Billed]], kills: Iterable[float] = ()) -> Verdict:
    """Compare the records, each once, with the provider's books; `kills` are the times at which processors died."""
    verdict = Verdict()
    records: defaultdict[str, list[UsageRecord]] = defaultdict(list)
    for record in ours:
        found = ID.match(record.request)
        records[found[0] if found else record.request].append(record)
    for name in records.keys() | books.keys():
        mine, theirs = records[name], books.get(name, [])
        if surplus := len(mine) - len(theirs):
            blind = sum(record.estimated and not record.usage.out_token for record in mine)
            died = sum(any(abs(call.began_at - kill) < LAST_SECONDS for kill in kills) for call in theirs)
            if -died <= surplus <= blind:
                verdict.unheard += surplus < 0
                verdict.unseen += surplus > 0
            else:
                (verdict.missing if surplus < 0 else verdict.double)[name] += abs(surplus)
            continue
        estimated = any(record.estimated for record in mine)
        ours_, theirs_ = verdict.estimated if estimated else verdict.exact
        counted = [(record.usage.in_token or 0, record.usage.out_token or 0) for record in mine]
        billed = [(call.prompt, call.sent) for call in theirs]
        for prompt, answer in counted:
            ours_.add(prompt, answer)
        for prompt, answer in billed:
            theirs_.add(prompt, answer)
        if not estimated and sorted(counted) != sorted(billed):
            verdict.wrong.append(f"{name}: {counted}, the provider says {billed}")
    return verdict


class Client:
    """Asks by one door after the other. Whatever a door answers is right here: the books are judged.

    Args:
        http: asks.
        chance: draws how much is asked, and what goes wrong.
        urls: of the gateways that run now.
        leaving: the share of requests that their client leaves.
        cut: the share that the provider cuts off.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        chance: random.Random,
        urls: Callable[[], list[str]],
        *,
        leaving: float = 0.25,
        cut: float = 0.06,
    ) -> None:
        self._http = http
        self._chance = chance
        self._urls = urls
        self._leaving = leaving
        self._cut = cut
        self.outcomes: Counter[str] = Counter()

    async def ask(self, number: int) -> None:
        """One request, to its end or to where its client leaves."""
        chance, kind = self._chance, KINDS[number % len(KINDS)]
        name = f"{kind}{number}x"
        shares = (1 - self._cut - REFUSED, self._cut, REFUSED)
        fault = "thought" if kind == "agent" else chance.choices(FAULTS, shares)[0]
        tokens, gap = chance.randint(4, 24), chance.choice((0.0, 0.005, 0.02))
        prompt = f"id={name} tokens={tokens} gap={gap} fault={fault} {FILLER * chance.randint(1, 6)}"
        leaves = chance.random() * 1.5 * (gap * tokens + 0.1) if chance.random() < self._leaving else None
        try:
            async with asyncio.timeout(leaves if leaves is not None else 90):
                self.outcomes[await self._send(kind, prompt, {"X-Request-Id": name})] += 1
        except TimeoutError:
            self.outcomes["hung" if leaves is None else "left"] += 1
        except (aiohttp.ClientError, ConnectionError, IndexError):
            self.outcomes["connection"] += 1
            await asyncio.sleep(0.1)

    async def _send(self, kind: str, prompt: str, headers: dict[str, str]) -> str:
        url = self._chance.choice(self._urls()).rstrip("/")
        if kind in SOCKETS:
            return await self._talk(kind, url, prompt, headers)
        path, body = make_request(kind, prompt)
        match kind:
            case "prompt":
                path, body = "/api/v1/prompt", {"id": "say", "variables": {"text": prompt}, "streaming": True}
            case "list":
                path, body = make_request("completions", "")
                body["prompt"] = [prompt] * 3
            case "whole" | "background":
                path, body = make_request("openai" if kind == "whole" else "responses", prompt)
                body |= {"stream": False} | ({"background": True, "store": True} if kind == "background" else {})
        async with self._http.post(url + path, json=body, headers=headers) as response:
            await response.read()
            return str(response.status)

    async def _talk(self, kind: str, url: str, prompt: str, headers: dict[str, str]) -> str:
        path, body = make_request(kind, prompt)
        path = "/api/v1/socket" if kind == "websocket" else path
        async with self._http.ws_connect(url + path, headers=headers) as socket:
            if kind == "websocket":
                asked = {"id": "1", "service": "text-completion", "flow": "default", "request": body}
                await socket.send_json({"type": "auth", "token": ""})
                await socket.send_json(asked)
            else:
                await socket.send_str(f"GENERATE {json.dumps(body)}")
            async for message in socket:
                text = str(message.data)
                if '"end_of_stream":true' in text or '"finish_reason":"' in text or re.search('"error": *["{]', text):
                    return "socket"
        return "socket closed"


class Books:
    """All records of usage, as another reader gets them: each once, as the service counts them."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int, int], UsageRecord] = {}
        self.copies = 0

    async def read(self, deliveries: AsyncIterator[Delivery]) -> None:
        """Read until cancelled."""
        async for delivery in deliveries:
            for line in delivery.body.split(b"\n"):
                record = decode(UsageRecord, line)
                key = record.stream, record.attempt, record.call
                self.copies += key in self.records
                self.records.setdefault(key, record)
            delivery.ack()


@dataclass
class Killer:
    """Kills one process after the other, and starts another in its place.

    Attributes:
        deaths: what died when, in seconds since the epoch.
        enough: set to end.
    """

    line: Pipeline
    parts: list[Part]
    chance: random.Random
    every: float
    deaths: list[tuple[str, float]] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until it is enough; then all parts run."""
        while not self.enough.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.enough.wait(), self.every)
                return
            place = self.chance.randrange(len(PARTS))
            self.parts[place].process.kill()
            self.deaths.append((PARTS[place], time.time()))
            self.parts[place] = await self.line.start(PARTS[place])


async def settle(look: Callable[[], Awaitable[object]]) -> None:
    """Return once two looks, three seconds apart, see the same."""
    before, now = object(), await look()
    while before != now:
        await asyncio.sleep(3)
        before, now = now, await look()


@asynccontextmanager
async def running(line: Pipeline) -> AsyncIterator[list[Part]]:
    """All parts, the reader of usage first."""
    parts = {place: await line.start(PARTS[place]) for place in reversed(range(len(PARTS)))}
    yield [parts[place] for place in range(len(PARTS))]


async def account(
    broker: str, folder: Path, *, requests: int, every: float, seed: int, seconds: float, abreast: int = 64
) -> Verdict:
    """Run, judge and print."""
    chance = random.Random(seed)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(BillingOpenAi.listening())
        line = Pipeline(provider.url, broker, folder, ready=READY)
        line.file.write_text(CONFIGURATION.format(provider=provider.url, folder=folder), "utf-8")
        stack.push_async_callback(line.close)
        bus = await stack.enter_async_context(open_bus(broker))
        deliveries = await stack.enter_async_context(bus.subscribe(Topics().usage, "account"))
        books = Books()
        reading = asyncio.create_task(books.read(deliveries))
        stack.callback(reading.cancel)
        parts = await stack.enter_async_context(running(line))
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        client = Client(http, chance, lambda: [part.url for part in parts[:2] if part.alive])
        killer = Killer(line, parts, random.Random(seed), every)
        killing = asyncio.create_task(killer.run())
        numbers, began = iter(range(requests)), time.monotonic()

        async def work() -> None:
            for number in numbers:
                if time.monotonic() - began > seconds:
                    return
                await client.ask(number)
                if number % 5000 == 4999:
                    print(f"  {number + 1} requests, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

        await asyncio.gather(*(work() for _ in range(abreast)))
        killer.enough.set()
        await killing
        await settle(lambda: _see(provider, books))
        for part in parts[2:4]:
            part.process.send_signal(signal.SIGTERM)
        await settle(lambda: _see(provider, books))
        async with http.get(parts[0].url + "api/v1/usage?since=1d") as answer:
            (row,) = (await answer.json())["rows"]
        verdict = judge(
            books.records.values(), provider.calls, [at for part, at in killer.deaths if part == "text-completion"]
        )
        print(f"killed: {dict(Counter(part for part, _ in killer.deaths))}, {time.monotonic() - began:.0f} s")
        tell(verdict, books, client.outcomes, row)
        counted = _add(books.records.values())
        if (row["calls"], row["in_token"], row["out_token"]) != (counted.calls, counted.prompt, counted.answer):
            verdict.wrong.append(f"the service says {row}, the records {counted}")
        return verdict


async def _see(provider: BillingOpenAi, books: Books) -> tuple[int, int]:
    return provider.running, len(books.records) + books.copies


def _add(records: Iterable[UsageRecord]) -> Sums:
    sums = Sums()
    for record in records:
        sums.add(record.usage.in_token or 0, record.usage.out_token or 0)
    return sums


def tell(verdict: Verdict, books: Books, outcomes: Counter[str], row: dict[str, Any]) -> None:
    """Print it."""
    print(f"answers: {dict(outcomes)}; copies of records: {books.copies}; the service: {row}")
    for kind in ("exact", "estimated"):
        print(f"{kind}: ours {getattr(verdict, kind)[0]}, the provider's {getattr(verdict, kind)[1]}")
    print(f"estimates off by {verdict.off[0]:.1%} of the prompts' tokens, {verdict.off[1]:.1%} of the answers'")
    for name, calls in (("missing", verdict.missing), ("double", verdict.double)):
        print(f"{name}: {sum(calls.values())} {dict(calls.most_common(9))}")
    print(f"wrong: {verdict.wrong[:9]}")
    print(f"at deaths: unheard {verdict.unheard}, unseen {verdict.unseen}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no more is asked")
    parser.add_argument("--kill-every", type=float, default=8.0, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with PulsarServer() as broker, tempfile.TemporaryDirectory(prefix="tokengrid-account-") as folder:
        verdict = asyncio.run(
            account(
                broker.service_url,
                Path(folder),
                requests=args.requests,
                every=args.kill_every,
                seed=args.seed,
                seconds=args.seconds,
            )
        )
    sys.exit(0 if verdict.holds else 1)


if __name__ == "__main__":
    main()
