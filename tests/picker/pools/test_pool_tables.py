"""Pools that are tables of a configuration: what leads to them, and that `tg-pick` and the provider read them alike."""

from pathlib import Path
from random import Random

import msgspec
import pytest

from tg_picker.extproc.pick_config import PickConfig, read_pick_config
from tg_picker.pools import Destination, PoolTable, Slo
from tg_picker.pools.pool_watcher import PoolWatcher
from tg_picker.provider.options import PoolOptions
from tg_schema.errors import BadRequest

FILE = """\
[[pools]]
name = "chat"
endpoints = ["10.0.0.1:8000", "[::1]:8000"]
models = ["llama"]
adapters = ["sentiment"]
priority = 2
objective = { first_token = 1.5, output_token = 0.05, share = 0.95 }

[[pools]]
name = "batch"
endpoints = ["10.0.0.9:8000"]
models = ["small"]
priority = -1
"""
PROMISES = (Slo("TimeToFirstToken", 1.5, 0.95), Slo("OutputTokenLatency", 0.05, 0.95))


@pytest.fixture
def config(tmp_path: Path) -> PickConfig:
    file = tmp_path / "pick.toml"
    file.write_text(FILE, "utf-8")
    return read_pick_config(file)


@pytest.mark.parametrize(
    ("model", "destination"),
    [
        ("llama", Destination("chat", "llama", None, 2, PROMISES, "chat")),
        ("sentiment", Destination("chat", "sentiment", "sentiment", 2, PROMISES, "chat")),
        ("small", Destination("batch", "small", None, -1, (), "batch")),
        ("other", None),
    ],
)
def test_a_model_leads_to_its_pool(config: PickConfig, model: str, destination: Destination | None) -> None:
    view = PoolWatcher(config.make_sources(Path())).view
    assert view.catalogue.resolve(model, Random(0)) == destination
    addresses = {pool: [each.address for each in members] for pool, members in view.members.items()}
    assert addresses == {"chat": ["10.0.0.1:8000", "[::1]:8000"], "batch": ["10.0.0.9:8000"]}
    # A model of a table is no adapter, also where a request names it as one of the pool's.
    assert view.served == {"chat": {"llama"}, "batch": {"small"}}


def test_envoy_hedges_by_a_policy_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "pick.toml"
    file.write_text(FILE + "failure = { hedging_delay = 0.5 }\n", "utf-8")
    with pytest.raises(BadRequest, match="the route batch has a hedging delay, but Envoy calls the servers; remove it"):
        PoolWatcher(read_pick_config(file).make_sources(tmp_path))


@pytest.mark.parametrize("wrong", ["max_attempts = 0", "hedging_delay = 0", "max_wait = -1", "wait = 1"])
def test_a_wrong_failure_policy_is_refused_with_its_line(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "pick.toml"
    file.write_text(f"{FILE}failure = {{ {wrong} }}\n", "utf-8")
    with pytest.raises(BadRequest, match="line 14"):
        read_pick_config(file)


@pytest.mark.parametrize("wrong", ["first_token = 0", "first_token = -1", 'first_token = "fast"'])
def test_a_promise_that_nobody_can_keep_is_refused_with_its_line(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "pick.toml"
    file.write_text(FILE.replace("first_token = 1.5", wrong), "utf-8")
    with pytest.raises(BadRequest, match=r"line 7.*objective\.first_token must be a number"):
        read_pick_config(file)


def test_the_provider_reads_the_same(config: PickConfig) -> None:
    options = msgspec.convert({"pools": msgspec.to_builtins(config.pools)}, PoolOptions)
    options.endpoint("llama")
    assert PoolWatcher(options.sources("llama")).view == PoolWatcher(config.make_sources(Path())).view
    with pytest.raises(BadRequest, match="names cannot stand beside pools"):
        msgspec.structs.replace(options, names=("gpu:80",)).endpoint("llama")


async def test_two_pools_may_have_a_name_in_dns_in_common() -> None:
    tables = tuple(PoolTable(pool, names=("localhost:8000",), models=(f"model-{pool}",)) for pool in "ab")
    sources = PickConfig(pools=tables).make_sources(Path())
    async with PoolWatcher(sources) as watcher:
        first, second = watcher.view.members.values()
        assert [each.address for each in first] == [each.address for each in second] != []
