"""GET /api/v1/usage and `tg-usage`: who may see what, in which form; and the sums beside the provider's own books."""

import asyncio
import csv
import hashlib
import io
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from bench.account import CONFIGURATION, KINDS, Client, judge
from tests.fakes.billing_openai import Billed, BillingOpenAi
from tests.flow.command import ran
from tests.flow.edited_models import write
from tests.flow.serve_context import context_of
from tests.flow.test_usage import BOB, TOPICS, config_file, counted_in, record
from tests.until import TICK_SECONDS
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.config import ApiKey, ConfigWatcher, GatewayConfig
from tg_client import SyncTgClient, TgClient
from tg_flow.usage import UsageConfig, UsageKind
from tg_gateway.app import Gateway
from tg_schema import Usage, encode
from tg_schema.errors import AccessDenied, NotFound
from tg_schema.usage_record import Payer, UsageRecord
from tg_schema.usage_report import UsageRow
from tg_serve.launcher import inspect, launch
from tg_serve.options import ServeOptions

PERIOD: dict[str, Any] = {"since": "2026-01-01", "until": "2027-01-01"}


def key_of(name: str, *, admin: bool = False) -> ApiKey:
    return ApiKey(name=name, sha256=hashlib.sha256(name.encode()).hexdigest(), admin=admin)


KEYED = GatewayConfig(port=0, drain=0.05, keys=(key_of("alice"), key_of("bob"), key_of("root", admin=True)))
OPEN = GatewayConfig(port=0, drain=0.05)


@asynccontextmanager
async def opened(folder: Path, config: GatewayConfig = OPEN, calls: int = 3) -> AsyncIterator[str]:
    """The URL of a gateway whose reader has counted."""
    watcher = ConfigWatcher(config_file(folder), services=(UsageConfig,))
    routes = watcher.config.routes("usage")
    records = [
        record("1", Usage(1000, 500, 10), cost=1_234_567),
        record("2", payer=BOB),
        record("3", Usage(), payer=Payer(customer='=1+1,"\n\x1b[2J')),
    ]
    async with (
        aclosing(MemoryBus()) as bus,
        UsageKind().serve(context_of(watcher, bus)),
        Requestor(bus, watcher.config.topics, queues=tuple(route.request for route in routes)) as requestor,
        Gateway(config, requestor, routes) as gateway,
    ):
        for each in records[:calls]:
            await bus.publish(TOPICS.usage, encode(each), {})
        async with (
            TgClient(gateway.url, token="root") as client,
            asyncio.timeout(30),
        ):
            while True:
                rows = (await client.usage(**PERIOD)).rows
                if rows and rows[0].calls == calls:
                    break
                await asyncio.sleep(TICK_SECONDS)
        yield gateway.url


async def test_without_keys_everybody_sees_all(tmp_path: Path) -> None:
    async with opened(tmp_path) as url, aiohttp.ClientSession(url) as http:
        async with http.get("api/v1/usage", params={"by": "key, model", **PERIOD}) as answer:
            assert (answer.status, await answer.json()) == (
                200,
                {
                    "rows": [
                        {"model": "m", "calls": 1, "uncounted_calls": 1, "unpriced_calls": 1},
                        {"key": "alice", "model": "m", "calls": 1, "in_token": 1000, "out_token": 500,
                         "cached_token": 10, "cost": 1_234_567},
                        {"key": "bob", "model": "m", "calls": 1, "in_token": 10, "out_token": 5, "unpriced_calls": 1},
                    ],
                    "since": "2026-01-01T00:00Z",
                    "until": "2027-01-01T00:00Z",
                    "lasting": False,
                    "end_of_stream": True,
                },
            )  # fmt: skip
        async with http.get("api/v1/usage", params={"sinse": "1d"}) as answer:
            assert answer.status == 400
            assert "there is no parameter 'sinse'; there are: by, since" in (await answer.json())["error"]["message"]
        async with http.get("api/v1/usage", params={"by": "colour"}) as answer:
            assert answer.status == 400


async def test_a_key_sees_its_own_and_an_administrator_all(tmp_path: Path) -> None:
    async with opened(tmp_path, KEYED) as url:
        async with TgClient(url, token="alice", retries=0) as alice:
            assert [(row.key, row.calls) for row in (await alice.usage(["key"], **PERIOD)).rows] == [("alice", 1)]
            assert [row.key for row in (await alice.usage(["key"], key="alice", **PERIOD)).rows] == ["alice"]
            with pytest.raises(AccessDenied, match="admin = true"):
                await alice.usage(key="bob", **PERIOD)
        async with TgClient(url, token="root", retries=0) as root:
            assert [row.key for row in (await root.usage(["key"], **PERIOD)).rows] == [None, "alice", "bob"]
            assert (await root.usage(key="bob", **PERIOD)).rows == (
                UsageRow(calls=1, in_token=10, out_token=5, unpriced_calls=1),
            )
        async with aiohttp.ClientSession(url) as http, http.get("api/v1/usage") as answer:
            assert answer.status == 401


@pytest.mark.parametrize("key", [None, "bob", ""])
@pytest.mark.parametrize("door", ["http", "socket"])
async def test_no_other_door_shows_more(tmp_path: Path, door: str, key: str | None) -> None:
    asked = {"by": ["key"], **PERIOD, **({} if key is None else {"key": key})}
    async with opened(tmp_path, KEYED) as url, aiohttp.ClientSession(url) as http:
        bearer = {"Authorization": "Bearer alice"}
        if door == "http":
            async with http.post("api/v1/flow/default/service/usage", json=asked, headers=bearer) as answer:
                assert answer.status == 403
            mine = {**asked, "key": "alice"}
            async with http.post("api/v1/flow/default/service/usage", json=mine, headers=bearer) as answer:
                assert [row["key"] for row in (await answer.json())["rows"]] == ["alice"]
        else:
            async with http.ws_connect("api/v1/socket?token=alice", headers=bearer) as socket:
                await socket.send_json({"type": "auth", "token": "alice"})
                await socket.send_json({"id": "1", "service": "usage", "flow": "default", "request": asked})
                said = await socket.receive_json()
                while said.get("id") != "1":
                    said = await socket.receive_json()
                assert "access-denied" in json.dumps(said)


def test_the_blocking_client_has_it(tmp_path: Path) -> None:
    with SyncTgClient("http://127.0.0.1:9", retries=0) as client, pytest.raises(Exception, match="no gateway answers"):
        client.usage(["key"])


async def test_the_command_prints_a_table(tmp_path: Path) -> None:
    async with opened(tmp_path) as url:
        done = await ran(
            "tg-usage", "--by", "key,customer", "--since", "2026-01-01", "--until", "2027-01-01", "-u", url
        )
    assert done.code == 0
    assert done.out.splitlines() == [
        "KEY    CUSTOMER     CALLS  INPUT  CACHED  OUTPUT    COST $",
        '-      =1+1," \x1b[2J      1      -       -       -         -',
        "alice  c1               1   1000      10     500  0.001235",
        "bob    -                1     10       -       5         -",
    ]
    assert done.err == "these sums began when the usage service started: its configuration names no database\n"


async def test_the_command_prints_csv_and_json(tmp_path: Path) -> None:
    period = ("--since", "2026-01-01", "--until", "2027-01-01")
    async with opened(tmp_path) as url:
        done = await ran("tg-usage", "--by=key,customer", "--csv", *period, TOKENGRID_URL=url)
        rows = list(csv.DictReader(io.StringIO(done.out)))
        assert (done.code, [row["key"] for row in rows]) == (0, ["", "alice", "bob"])
        assert rows[0]["customer"] == '=1+1,"\n\x1b[2J'
        assert rows[1] == {
            "key": "alice", "customer": "c1", "calls": "1", "in_token": "1000", "out_token": "500",
            "cached_token": "10", "reasoning_token": "", "cache_write_token": "", "estimated_token": "0",
            "uncounted_calls": "0", "cost_usd": "0.001234567", "unpriced_calls": "0",
        }  # fmt: skip
        assert rows[0]["cost_usd"] == ""
        done = await ran("tg-usage", "--by=key", "--json", *period, TOKENGRID_URL=url)
        assert [json.loads(line).get("cost") for line in done.out.splitlines()] == [None, 1_234_567, None]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--by", "colour"), 1, "tg-usage: usage cannot be summed by 'colour'"),
        (("--since", "yesterday"), 1, "tg-usage: `since` is no time"),
        (("--csvv",), 2, "No such option '--csvv'"),
    ],
)
async def test_the_command_refuses_on_stderr(tmp_path: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    async with opened(tmp_path, calls=1) as url:
        done = await ran("tg-usage", *arguments, "-u", url)
    assert (done.code, done.out) == (code, "")
    assert words in done.err


async def test_a_gateway_without_the_service(tmp_path: Path) -> None:
    file = tmp_path / "tg.toml"
    file.write_text("[gateway]\nport = 0\n")
    async with launch(ServeOptions(file=file)) as (_, url), TgClient(str(url), retries=0) as client:
        with pytest.raises(NotFound, match="no flow has the service 'usage': bind it in one flow"):
            await client.usage()


async def test_tg_serve_runs_it_beside_all_else(tmp_path: Path) -> None:
    file = config_file(tmp_path, f'database = "{tmp_path / "usage.db"}"', "[gateway]\nport = 0\n")
    said, findings = await inspect(ServeOptions(file=file))
    assert findings == []
    assert "usage (default)" in said
    async with launch(ServeOptions(file=file)) as (_, url), TgClient(str(url), retries=0) as client:
        answer = await client.usage(["key"])
        assert (answer.rows, answer.lasting) == ((), True)


async def has_usage(client: TgClient) -> bool:
    try:
        await client.usage()
    except NotFound:
        return False
    return True


async def test_an_edit_moves_the_sums_and_ends_them(tmp_path: Path) -> None:
    file, bound = tmp_path / "tg.toml", '[flows.default]\nusage.database = "{}"\n'
    served = (
        '[gateway]\nport = 0\n[models.m]\nprovider = "tests.fakes.counting_llm:CountingLlm"\n'
        '[flows.f]\ntext-completion.model = "m"\n'
    )
    write(file, served + bound.format(tmp_path / "one.db"))
    async with launch(ServeOptions(file=file)) as (_, url), TgClient(str(url), retries=0) as client:
        for name in ("one.db", "two.db"):
            write(file, served + bound.format(tmp_path / name))
            with counted_in(tmp_path / name) as database:
                async with asyncio.timeout(60):
                    while not database.find((), 0, 2**40, None, 1):
                        await client.flow("f").text_completion("", "1")
        write(file, served)
        async with asyncio.timeout(60):
            while await has_usage(client):
                pass


async def test_a_gateway_is_ready_while_the_reader_is_away(tmp_path: Path) -> None:
    """Nobody waits for it. Two processes over a broker, in which the reader's has not been started."""
    file = config_file(tmp_path, "", "[gateway]\nport = 0\n")
    order = ServeOptions(file=file, services={})
    async with launch(order, kinds={}) as (_, url), aiohttp.ClientSession(str(url)) as http:
        async with http.get("ready") as answer:
            assert answer.status == 200
        async with http.get("api/v1/usage") as answer:
            assert answer.status == 503


EACH = 4


@asynccontextmanager
async def billing(folder: Path, seed: int) -> AsyncIterator[tuple[BillingOpenAi, str, Client]]:
    """A provider with its own books, the URL of a process before it, and who asks that."""
    async with BillingOpenAi.listening() as provider:
        file = folder / "tg.toml"
        text = CONFIGURATION.format(provider=provider.url, folder=folder).replace("[gateway]", "[gateway]\nport = 0")
        file.write_text(text)
        async with launch(ServeOptions(file=file)) as (_, url), aiohttp.ClientSession() as http:
            yield provider, str(url), Client(http, random.Random(seed), lambda: [str(url)], leaving=0, cut=0)


async def test_every_door_agent_prompt_and_list_is_counted_as_the_provider_counts(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    async with billing(tmp_path, seed) as (provider, url, client), aiohttp.ClientSession(url) as http:
        await asyncio.gather(*map(client.ask, range(EACH * len(KINDS))))
        assert {*client.outcomes} == {"200", "socket"}, (seed, client.outcomes)
        assert len(provider.calls) == EACH * len(KINDS), seed
        async with asyncio.timeout(30):
            while True:
                async with http.get("api/v1/usage") as answer:
                    rows = (await answer.json())["rows"]
                calls = [call for calls in provider.calls.values() for call in calls]
                if not provider.running and rows and rows[0]["calls"] >= len(calls):
                    break
                await asyncio.sleep(TICK_SECONDS)
    refused = sum(call.refused for call in calls)
    assert rows == [
        {
            "calls": len(calls),
            "in_token": sum(call.prompt for call in calls),
            "out_token": sum(call.sent for call in calls),
            **({"uncounted_calls": refused} if refused else {}),
            "unpriced_calls": len(calls),
        }
    ], seed


async def test_an_embedded_process_that_ends_at_once_has_counted_all(tmp_path: Path) -> None:
    async with billing(tmp_path, 1) as (provider, _, client):
        await asyncio.gather(*map(client.ask, range(len(KINDS))))
    calls = [call for calls in provider.calls.values() for call in calls]
    with counted_in(tmp_path / "usage.db") as database:
        (row,) = database.find((), 0, 2**40, None, 1)
    billed = len(calls), sum(call.prompt for call in calls), sum(call.sent for call in calls)
    assert (row.calls, row.in_token, row.out_token) == billed


COUNTED = Usage(10, 4)


def booked(request: str, usage: Usage = COUNTED, **more: Any) -> UsageRecord:
    fields = {"provider": "openai", "usage": usage, **more}
    return UsageRecord(request, 1, request=request, **fields)


BOOKS = {name: [Billed(10, 4, told=True, began_at=100.0)] for name in ("a1x", "a2x")}


def test_what_the_account_sees() -> None:
    good = [booked("a1x"), booked("a2x.1")]
    assert judge(good, BOOKS).holds
    assert judge(good[:1], BOOKS).missing == {"a2x": 1}
    assert judge([*good, booked("a3x")], BOOKS).double == {"a3x": 1}
    assert len(judge([good[0], booked("a2x", usage=Usage(10, 5))], BOOKS).wrong) == 1
    estimated = [msgspec.structs.replace(each, estimated=True) for each in good]
    assert judge(estimated, BOOKS).holds
    assert not judge([booked("a1x", usage=Usage(13, 4), estimated=True), good[1]], BOOKS).holds


def test_what_nobody_knew_when_a_process_died_is_told_apart() -> None:
    died = judge([booked("a1x")], BOOKS, kills=[100.3])
    assert (died.holds, died.unheard) == (True, 1)
    assert judge([booked("a1x")], BOOKS, kills=[101.0]).missing == {"a2x": 1}
    guess = booked("a3x", provider="", usage=Usage(3, 0), estimated=True)
    unseen = judge([booked("a1x"), booked("a2x"), guess], BOOKS, kills=[100.3])
    assert (unseen.holds, unseen.unseen) == (True, 1)
