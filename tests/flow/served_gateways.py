"""Several gateways and a process of models, prompts and agents on one bus: each watches its own copy of the file."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from structlog.testing import capture_logs

from tests.fakes.shared_bus import SharedBus
from tests.flow.edited_models import table, write
from tests.installed_package import install_package
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_serve.launcher import launch
from tg_serve.options import GATEWAY, ServeOptions

GATEWAYS = 8
SERVICES = ("text-completion", "prompt", "agent")
MODELS = table("m", "old") + table("n", "other")
HEAD = """[gateway]
port = 0
drain = 0.05
{gateway}
[bus]
url = "shared://"
"""
FLOWS = '[flows]\nf.text-completion.model = "m"\ng.text-completion.model = "n"\n'


def config_of(more: str = "", gateway: str = "", flows: str = FLOWS) -> str:
    return HEAD.format(gateway=gateway) + MODELS + flows + more


def text_of(events: bytes) -> str:
    """What the records of an answer say."""
    lines = [line.removeprefix(b"data: ") for line in events.splitlines() if line.startswith((b"data: {", b"{"))]
    records = [json.loads(line) for line in lines]
    return "".join(each.get("response") or each.get("text") or each.get("content") or "" for each in records)


@dataclass
class Gateways:
    """What a test needs of them."""

    file: Path
    doors: list[ClientSession]
    logs: list[MutableMapping[str, Any]]

    def edit(self, text: str) -> None:
        self.logs.clear()
        write(self.file, text)

    async def told(self, event: str, times: int = GATEWAYS + 1) -> MutableMapping[str, Any]:
        """Wait until so many processes have logged it; all of them by default."""
        await until(lambda: sum(line["event"] == event for line in self.logs) >= times)
        return next(line for line in self.logs if line["event"] == event)

    async def say(self, model: str, prompt: str = "x") -> set[str]:
        """What all gateways have answered for this model: a text, or the status of an error."""
        return {await ask(http, "text-completion", {"model": model, "prompt": prompt}) for http in self.doors}

    async def until_listed(self, *models: str) -> None:
        """Until each gateway lists these models."""
        async with asyncio.timeout(30):
            for http in self.doors:
                while await list_models(http) != models:
                    pass


async def list_models(http: ClientSession) -> tuple[str, ...]:
    async with http.get("v1/models") as response:
        return tuple(each["id"] for each in (await response.json())["data"])


async def ask(http: ClientSession, path: str, body: dict[str, Any]) -> str:
    """The text of an answer, or the status of an error."""
    async with http.post(f"api/v1/{path}", json=body) as response:
        return text_of(await response.read()) if response.status == 200 else str(response.status)


def share_bus(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A new bus for all that open it by its URL; and the file."""
    points = "[tokengrid.buses]\nshared = tests.fakes.shared_bus:SharedBus"
    install_package(folder / "site", monkeypatch, "shared-bus", points)
    SharedBus.behind = MemoryBus()
    file = folder / "tg.toml"
    write(file, text)
    return file


@asynccontextmanager
async def gateways(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> AsyncIterator[Gateways]:
    """All run, and know each other."""
    file = share_bus(folder, monkeypatch, text)
    with capture_logs() as logs:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(SharedBus.behind.aclose)
            await stack.enter_async_context(launch(ServeOptions(file=file, only=SERVICES)))
            doors = []
            for _ in range(GATEWAYS):
                _, url = await stack.enter_async_context(launch(ServeOptions(file=file, only=(GATEWAY,))))
                doors.append(await stack.enter_async_context(ClientSession(str(url))))
            it = Gateways(file, doors, logs)
            for http in doors:
                ready = False
                while not ready:
                    async with http.get("ready") as response:
                        ready = response.status == 200
            yield it
