"""An edit of the configuration file: how it comes into force, and who may refuse it."""

import asyncio
import os
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import structlog
from typing_extensions import override

from tests.fakes.echo_service import EchoRequest, EchoResponse
from tests.within import within
from tg_base.config import (
    Config,
    ConfigWatcher,
    ServiceConfig,
)
from tg_doors import LmiConfig
from tg_schema import ServiceSpec
from tg_schema.errors import BadRequest

GOOD = '[models.m]\nprovider = "openai"\n[flows.f]\ntext-completion = { model = "m" }\n'


class Heard:
    """A follower that keeps what it was told, and may refuse."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self.told = asyncio.Event()
        self.refuse = False

    def prepare(self, config: Config) -> Callable[[], None]:
        if self.refuse:
            raise BadRequest(f"{config.where('bus', 'url')}: not today")

        def commit() -> None:
            self.configs.append(config)
            self.told.set()

        return commit


async def seen(logs: list[MutableMapping[str, Any]], event: str) -> MutableMapping[str, Any]:
    """The first log line of that event, as soon as it is written; it is taken away, with all before it."""
    async with asyncio.timeout(5):
        while True:
            for number, entry in enumerate(logs):
                if entry["event"] == event:
                    del logs[: number + 1]
                    return entry
            await asyncio.sleep(0.005)


def replace(file: Path, text: str) -> None:
    """As editors do it: a new file in place of the old one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


async def test_an_edit_is_in_force_within_half_a_second(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("[gateway]\nreserve_tokens = 1\n")
    async with ConfigWatcher(file) as config_file:
        with config_file.follow(heard.prepare):
            replace(file, "[gateway]\nreserve_tokens = 2\n")
            await within(1, heard.told.wait())
            assert heard.configs[0].gateway.reserve_tokens == config_file.config.gateway.reserve_tokens == 2


async def test_a_broken_edit_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text('[bus]\nurl = "memory://"\n')
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(heard.prepare):
                before = config_file.config
                file.write_text('[bus]\nurl = "memory://"\nnamespcae = "x"\n')
                refused = await seen(logs, "config.refused")
                assert refused["reason"] == (
                    f'{file}, line 3: unknown field "namespcae" in bus; did you mean "namespace"?'
                )
                file.unlink()
                assert "is not there" in str((await seen(logs, "config.refused"))["reason"])
                assert config_file.config is before
                assert heard.configs == []
                replace(file, '[bus]\nurl = "memory://"\n[prompts]\nsystem = "x"\n')
                await seen(logs, "config.recovered")
                assert (await seen(logs, "config.in_force"))["keys"] == ["prompts.system"]
                assert heard.configs[0].prompts.system == "x"


async def test_a_follower_can_refuse_for_all(tmp_path: Path) -> None:
    file, first, second = tmp_path / "tg.toml", Heard(), Heard()
    file.write_text("")
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(first.prepare), config_file.follow(second.prepare):
                second.refuse = True
                file.write_text('[bus]\nurl = "memory://"\n[prompts]\nsystem = "x"\n')
                assert (await seen(logs, "config.refused"))["reason"] == f"{file}, line 2: not today"
                assert first.configs == []
                second.refuse = False
                file.write_text('[bus]\nurl = "memory://"\n[prompts]\nsystem = "y"\n')
                await seen(logs, "config.recovered")
                assert [config.prompts.system for config in first.configs] == ["y"]


async def test_a_defect_of_a_follower_refuses_the_edit_and_the_next_one_is_in_force(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("")

    def prepare(config: Config) -> Callable[[], None]:
        if config.prompts.system == "x":
            raise ZeroDivisionError
        return heard.prepare(config)

    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(prepare):
                replace(file, '[prompts]\nsystem = "x"\n')
                assert (await seen(logs, "config.defect"))["exc_info"]
                assert "a defect" in (await seen(logs, "config.refused"))["reason"]
                assert config_file.config.prompts.system == ""
                replace(file, '[prompts]\nsystem = "y"\n')
                await seen(logs, "config.recovered")
                assert [config.prompts.system for config in heard.configs] == ["y"]


async def test_an_edit_of_the_same_size_and_time_is_noticed_by_its_new_file(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("gateway.reserve_tokens = 1\n")
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    async with ConfigWatcher(file, poll=0.01) as config_file:
        with config_file.follow(heard.prepare):
            new = tmp_path / "new"
            new.write_text("gateway.reserve_tokens = 2\n")
            os.utime(new, ns=times)
            new.replace(file)
            await asyncio.wait_for(heard.told.wait(), 5)
            assert config_file.config.gateway.reserve_tokens == 2


async def test_what_needs_a_restart_says_so_until_it_is_taken_back(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("[gateway]\nport = 1\n" + GOOD)
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(heard.prepare):
                replace(file, "[gateway]\nport = 2\nhosts = ['h']\n" + GOOD + "[flows.g]\nprompt.plain = true\n")
                in_force = await seen(logs, "config.in_force")
                assert in_force == {
                    "event": "config.in_force",
                    "log_level": "info",
                    "file": str(file),
                    "keys": ["gateway.hosts", "flows.g"],
                }
                waiting = await seen(logs, "config.needs_restart")
                assert (waiting["keys"], waiting["log_level"]) == (["gateway.port"], "warning")
                assert waiting["reason"] == "this is read when a process starts; it needs a restart"
                assert (config_file.config.gateway.port, config_file.config.gateway.hosts) == (1, ("h",))
                assert list(config_file.config.flows) == ["f", "g"]
                replace(file, "[gateway]\nport = 2\nhosts = ['i']\n" + GOOD)
                assert (await seen(logs, "config.needs_restart"))["keys"] == ["gateway.port"]
                replace(file, "[gateway]\nport = 1\nhosts = ['i']\n" + GOOD)
                await seen(logs, "config.unchanged")
                assert logs == []
                assert [config.gateway.hosts for config in heard.configs] == [("h",), ("i",), ("i",)]


class FixedConfig(ServiceConfig, frozen=True, kw_only=True):
    """A service that takes its template once."""

    spec = ServiceSpec("fixed", EchoRequest, EchoResponse)
    followed = False
    template: str

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        if self.template not in config.prompts.templates:
            yield config.fault("there is no such template", "flows", flow, "fixed", "template")


async def test_an_edit_that_takes_what_a_service_needs_until_its_restart_is_refused(tmp_path: Path) -> None:
    file, text = tmp_path / "tg.toml", '[flows.g]\nfixed.template = "old"\n[prompts.templates.old]\nprompt = "x"\n'
    file.write_text(text)
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01, services=(FixedConfig,)) as config_file:
            replace(file, text.replace("old", "new"))
            reason = (await seen(logs, "config.refused"))["reason"]
            said = "line 2: there is no such template (what needs a restart counts as it was at the start)"
            assert reason == f"{file}, {said}"
            replace(file, text.replace("old", "new") + '[prompts.templates.old]\nprompt = "x"\n')
            assert (await seen(logs, "config.needs_restart"))["keys"] == ["flows.g.fixed.template"]
            assert {*config_file.config.prompts.templates} == {"old", "new"}


async def test_an_edit_of_a_doors_table_needs_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "tg.toml"
    file.write_text("[gateway.lmi]\ntgi_compat = true\n")
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            replace(file, "[gateway.lmi]\ntgi_compat = false\nrolling_batch = false\n")
            keys = (await seen(logs, "config.needs_restart"))["keys"]
            assert keys == ["gateway.lmi.tgi_compat", "gateway.lmi.rolling_batch"]
            assert config_file.config.gateway.door(LmiConfig) == LmiConfig(tgi_compat=True)
            replace(file, "")
            assert (await seen(logs, "config.needs_restart"))["keys"] == ["gateway.lmi"]


async def test_nobody_is_told_after_leaving(tmp_path: Path) -> None:
    file, left, stays = tmp_path / "tg.toml", Heard(), Heard()
    file.write_text("")
    async with ConfigWatcher(file, poll=0.01) as config_file:
        with config_file.follow(left.prepare):
            pass
        with config_file.follow(stays.prepare):
            file.write_text("gateway.port = 2\n")
            await asyncio.wait_for(stays.told.wait(), 5)
    assert left.configs == []
