"""The sum of usage beside the provider's own books, for requests by every door; and the eyes of `bench.account`."""

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench.account import CONFIGURATION, KINDS, Client, judge
from tests.fakes.billing_openai import Billed, BillingOpenAi
from tests.until import TICK_SECONDS
from tg_flow.usage.usage_database import UsageDatabase
from tg_schema import Usage
from tg_schema.usage_record import UsageRecord
from tg_serve.launcher import launch
from tg_serve.options import ServeOptions

EACH = 4


async def test_every_door_agent_prompt_and_list_is_counted_as_the_provider_counts(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    async with BillingOpenAi.listening() as provider:
        file = tmp_path / "tg.toml"
        text = CONFIGURATION.format(provider=provider.url, folder=tmp_path).replace("[gateway]", "[gateway]\nport = 0")
        file.write_text(text)
        async with launch(ServeOptions(file=file)) as (_, url), aiohttp.ClientSession() as http:
            client = Client(http, random.Random(seed), lambda: [str(url)], leaving=0, cut=0)
            await asyncio.gather(*map(client.ask, range(EACH * len(KINDS))))
            assert {*client.outcomes} == {"200", "socket"}, (seed, client.outcomes)
            assert len(provider.calls) == EACH * len(KINDS), seed
            async with asyncio.timeout(30):
                while True:
                    async with http.get(f"{url}api/v1/usage") as answer:
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
    sums = tmp_path / "usage.db"
    async with BillingOpenAi.listening() as provider:
        file = tmp_path / "tg.toml"
        text = CONFIGURATION.format(provider=provider.url, folder=tmp_path).replace("[gateway]", "[gateway]\nport = 0")
        file.write_text(text)
        async with launch(ServeOptions(file=file)) as (_, url), aiohttp.ClientSession() as http:
            client = Client(http, random.Random(1), lambda: [str(url)], leaving=0, cut=0)
            await asyncio.gather(*map(client.ask, range(len(KINDS))))
        calls = [call for calls in provider.calls.values() for call in calls]
    database = UsageDatabase(sums)
    database.open()
    (row,) = database.find((), 0, 2**40, None, 1)
    database.close()
    billed = len(calls), sum(call.prompt for call in calls), sum(call.sent for call in calls)
    assert (row.calls, row.in_token, row.out_token) == billed


COUNTED = Usage(10, 4)


def record(request: str, usage: Usage = COUNTED, **more: Any) -> UsageRecord:
    fields = {"provider": "openai", "usage": usage, **more}
    return UsageRecord(request, 1, request=request, **fields)


BOOKS = {name: [Billed(10, 4, told=True, began_at=100.0)] for name in ("a1x", "a2x")}


def test_what_the_account_sees() -> None:
    good = [record("a1x"), record("a2x.1")]
    assert judge(good, BOOKS).holds
    assert judge(good[:1], BOOKS).missing == {"a2x": 1}
    assert judge([*good, record("a3x")], BOOKS).double == {"a3x": 1}
    assert len(judge([good[0], record("a2x", usage=Usage(10, 5))], BOOKS).wrong) == 1
    estimated = [msgspec.structs.replace(each, estimated=True) for each in good]
    assert judge(estimated, BOOKS).holds
    assert not judge([record("a1x", usage=Usage(13, 4), estimated=True), good[1]], BOOKS).holds


def test_what_nobody_knew_when_a_process_died_is_told_apart() -> None:
    died = judge([record("a1x")], BOOKS, kills=[100.3])
    assert (died.holds, died.unheard) == (True, 1)
    assert judge([record("a1x")], BOOKS, kills=[101.0]).missing == {"a2x": 1}
    guess = record("a3x", provider="", usage=Usage(3, 0), estimated=True)
    unseen = judge([record("a1x"), record("a2x"), guess], BOOKS, kills=[100.3])
    assert (unseen.holds, unseen.unseen) == (True, 1)
