"""What a call costs: by the configuration, by the list of the library, or unknown, which is not 0."""

import os
from typing import NoReturn

import pytest
from genai_prices.data_snapshot import get_snapshot

from tg_base.config import PriceConfig
from tg_flow.usage.known_prices import LISTED_AS, find_costs
from tg_flow.usage.prices import Prices, multiply
from tg_schema import Usage
from tg_schema.usage_record import UsageRecord

PRICE = PriceConfig(input=3, output=15, cached_input=0.3, cache_write=3.75)
MINI = "gpt-4o-mini-2024-07-18"
"""0.15 dollars for a million tokens of input, and 0.6 of output."""


def record(usage: Usage, provider: str = "", name: str = MINI, operation: str = "completion") -> UsageRecord:
    return UsageRecord("s", 1, model="m", provider=provider, upstream_model=name, usage=usage, operation=operation)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(1, 0), 3_000),
        (Usage(0, 1), 15_000),
        (Usage(100, 10), 450_000),
        (Usage(100, 10, cached_token=60), 40 * 3_000 + 60 * 300 + 150_000),
        (Usage(100, 10, cached_token=60, cache_write_token=30), 10 * 3_000 + 60 * 300 + 30 * 3_750 + 150_000),
        (Usage(10, 0, cached_token=99, cache_write_token=99), 10 * 300),
        (Usage(0, 0), 0),
        (Usage(10**12, 0), 3 * 10**15),
        (Usage(None, 5), None),
        (Usage(5, None), None),
    ],
)
def test_a_configured_price(usage: Usage, cost: int | None) -> None:
    assert multiply(PRICE, record(usage)) == cost


def test_decimal_prices_are_exact() -> None:
    assert multiply(PriceConfig(input=0.1, output=0.7), record(Usage(3, 3))) == 2_400
    assert multiply(PriceConfig(input=0.0001, output=0), record(Usage(7, 0))) == 1


def test_free_is_configured_and_needs_no_counts() -> None:
    free = PriceConfig(input=0, output=0)
    assert multiply(free, record(Usage())) == 0


def test_without_prices_of_their_own_cached_tokens_cost_what_input_costs() -> None:
    price = PriceConfig(input=3, output=15)
    assert multiply(price, record(Usage(100, 0, cached_token=60, cache_write_token=40))) == 300_000


def test_vectors_have_no_output() -> None:
    assert multiply(PRICE, record(Usage(100, None), operation="embed")) == 300_000


@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        (record(Usage(1000, 100), "openai"), 150_000 + 60_000),
        (record(Usage(1000, 100, cached_token=1000), "openai"), 75_000 + 60_000),
        (record(Usage(1000, None), "openai"), None),
        (record(Usage(None, 10), "openai"), None),
        (record(Usage(10, 0, cached_token=11), "openai"), None),
        (record(Usage(1000, 100), "openai", "of-nobody"), None),
        (record(Usage(1000, None), "openai", "text-embedding-3-small", "embed"), 20_000),
    ],
)
def test_a_listed_price(asked: UsageRecord, cost: int | None) -> None:
    assert find_costs([asked]) == [cost]


@pytest.mark.parametrize("provider", LISTED_AS)
def test_every_name_of_a_provider_is_listed(provider: str) -> None:
    assert LISTED_AS[provider] in {each.id for each in get_snapshot().providers}


async def test_each_record_gets_its_own() -> None:
    prices = Prices({"m": PRICE, "up": PriceConfig(input=1, output=1)}, find_costs)
    one = Usage(1, 0)
    try:
        written = UsageRecord("s", 1, model="m", usage=one, cost=5)
        listed = UsageRecord("s", 2, model="x", provider="openai", upstream_model=MINI, usage=Usage(1000, 0))
        local = UsageRecord("s", 3, model="x", provider="openai-compatible", upstream_model=MINI, usage=one)
        here = UsageRecord("s", 4, model="m", provider="openai", upstream_model=MINI, usage=one)
        there = UsageRecord("s", 5, model="x", upstream_model="up", usage=one)
        found = await prices.find_costs([written, listed, local, here, there])
        assert found == [5, 150_000, None, 3_000, 1_000]
        prices.replace({})
        assert await prices.find_costs([here, there]) == [150, None]
    finally:
        await prices.aclose()


def end_the_process(_: object) -> NoReturn:
    os._exit(1)


async def test_a_worker_that_dies_leaves_a_cost_unknown() -> None:
    prices = Prices({"m": PRICE}, end_the_process)
    listed = UsageRecord("s", 2, provider="openai", usage=Usage(1, 0))
    try:
        assert await prices.find_costs([record(Usage(1, 0), "openai"), listed]) == [3_000, None]
    finally:
        await prices.aclose()


async def test_without_the_list_the_configuration_applies(capfd: pytest.CaptureFixture[str]) -> None:
    prices = Prices({"m": PRICE}, None)
    asked = [record(Usage(1, 0), "openai"), UsageRecord("s", 2, provider="openai", usage=Usage(1, 0))]
    for _ in range(2):
        assert await prices.find_costs(asked) == [3_000, None]
    assert "".join(capfd.readouterr()).count("usage.no_price_list") == 1
