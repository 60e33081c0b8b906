"""Edits of a kind whose services may hang or fail: what serves goes on, and a later edit corrects it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from tests.fakes.echo_service import EchoConfig, EchoKind, EchoRequest, EchoService
from tests.flow.edited_models import LIVELY, write
from tests.flow.serve_context import context_of
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ConfigWatcher
from tg_base.server import Opened, ServeContext

FILE = '[flows]\nf.echo.greeting = "old"\n'


class OddService(EchoService):
    """One that cannot be closed if its greeting says so."""

    def __init__(self, config: EchoConfig) -> None:
        super().__init__(config)
        self._unclosable = config.greeting == "unclosable"

    @override
    async def aclose(self) -> None:
        if self._unclosable:
            raise RuntimeError("a defect")


class OddKind(EchoKind):
    """Its services do as their greeting says."""

    def __init__(self) -> None:
        self.opening: list[str] = []

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        bound = context.config.bound(EchoConfig)
        for route in self.routes(context.config):
            self.opening.append(bound[route.flow].greeting)
            if self.opening[-1] == "hangs":
                await asyncio.Event().wait()
            yield Opened(OddService(bound[route.flow]), (route,))


@dataclass
class Echoes:
    """What a test needs of them."""

    file: Path
    kind: OddKind
    requestor: Requestor
    clients: dict[str, Client[Any, Any]]
    logs: list[MutableMapping[str, Any]]

    async def edit(self, text: str, event: str) -> MutableMapping[str, Any]:
        """Write the file, and wait for this line of the log."""
        self.logs.clear()
        write(self.file, text)
        await until(lambda: any(line["event"] == event for line in self.logs))
        return next(line for line in self.logs if line["event"] == event)

    def find_processors(self, flow: str) -> set[str]:
        """Who reads the flow's queue."""
        return {each.processor for each in self.requestor.presence.serving(self.clients[flow].route.request)}

    async def replace(self, text: str) -> None:
        """Edit the service of f, and wait until only the new one takes requests."""
        await self.say()
        before = self.find_processors("f")
        await self.edit(text, "services.in_force")
        await until(lambda: before.isdisjoint(self.find_processors("f")))

    async def say(self, flow: str = "f") -> str:
        return str((await self.clients[flow].call(EchoRequest("x"))).text)


@asynccontextmanager
async def echoing(folder: Path, text: str = FILE) -> AsyncIterator[Echoes]:
    bus, kind, file = MemoryBus(), OddKind(), folder / "tg.toml"
    write(file, text)
    with capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01, services=(EchoConfig,)) as watcher:
            topics = watcher.config.topics
            async with (
                kind.serve(context_of(watcher, bus, LIVELY)),
                Requestor(bus, topics, timing=LIVELY) as requestor,
            ):
                routes = watcher.config.routes("echo")
                yield Echoes(file, kind, requestor, {route.flow: Client(requestor, route) for route in routes}, logs)
    await bus.aclose()


@pytest.mark.parametrize("words", [["unclosable", "new"], ["old", "unclosable", "new"]], ids=["start", "edit"])
async def test_a_replaced_service_that_cannot_be_closed_leaves_the_new_one_serving(
    tmp_path: Path, words: list[str]
) -> None:
    first, *edits, last = (FILE.replace("old", word) for word in words)
    async with echoing(tmp_path, first) as it:
        for text in edits:
            await it.replace(text)
        failed = await it.edit(last, "services.close_failed")
        assert failed["reason"] == "a service has a defect; the log says which"
        await it.replace(FILE.replace("old", "newer"))
        assert await it.say() == "newer x "


async def test_an_edit_corrects_a_service_whose_opening_hangs(tmp_path: Path) -> None:
    async with echoing(tmp_path) as it:
        before = await it.say(), it.find_processors("f")
        write(it.file, FILE.replace("old", "hangs"))
        await until(lambda: it.kind.opening[1:] == ["hangs"])
        # One that changes no service lets it go on.
        await it.edit(FILE.replace("old", "hangs") + '[prompts.templates.t]\nprompt = "x"\n', "config.in_force")
        assert (await it.say(), it.find_processors("f")) == before
        await it.replace(FILE.replace("old", "new"))
        assert await it.say() == "new x "
        assert it.kind.opening == ["old", "hangs", "new"]


async def test_the_queue_of_a_flow_that_goes_is_still_read_for_a_while(tmp_path: Path) -> None:
    async with echoing(tmp_path, FILE + "g.echo = {}") as it:
        assert [await it.say(flow) for flow in "fg"] == ["old x ", "x "]
        before = it.find_processors("g")
        await it.replace(FILE.replace("old", "new"))
        assert it.find_processors("g") == before
        assert [await it.say(flow) for flow in "fg"] == ["new x ", "x "]
        await until(lambda: not it.find_processors("g"))
