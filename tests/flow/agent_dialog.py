"""A pipeline with an agent over a scripted model, for the tests of agents; and what every dialog must satisfy."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.flow.serve_context import context_of
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ConfigWatcher
from tg_base.llm import LlmService
from tg_base.protocol import HeartbeatTiming
from tg_base.server import Processor
from tg_flow.agent import AgentKind
from tg_flow.prompt import PromptKind
from tg_schema import AgentRequest, AgentResponse, TgError
from tg_schema.topics import Topics

TOPICS = Topics()
BASE = """
[models.m]
provider = "none"
[flows.default]
text-completion = { model = "m" }
prompt = {}
agent = {}
"""
LIVELY = HeartbeatTiming(0.3)
"""For those who wait for a death."""


@dataclass
class Told:
    """A dialog as its requestor heard it, and how it failed."""

    records: list[AgentResponse]
    error: TgError | None = None

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Type and whole content of each message, in the order of their beginnings."""
        contents: dict[tuple[tuple[str, ...], str | None], list[Any]] = {}
        for record in self.records:
            message = contents.setdefault((record.path, record.message_id), [record.chunk_type, ""])
            message[1] += record.content or ""
        return [(kind, content) for kind, content in contents.values()]

    @property
    def answer(self) -> str:
        assert self.error is None, self.error
        last = self.records[-1].message_id
        return "".join(record.content or "" for record in self.records if record.message_id == last)


@dataclass
class Pipeline:
    bus: Bus
    clients: Mapping[str, Client[AgentRequest, AgentResponse]]

    async def tell(self, question: str = "q", *, flow: str = "default", streaming: bool = True, **more: Any) -> Told:
        """Ask, and listen to the end. Every dialog is held against what all must satisfy."""
        told = Told([])
        try:
            async with self.clients[flow].stream(AgentRequest(question, streaming=streaming, **more)) as records:
                async for record in records:
                    told.records.append(record)
        except TgError as error:
            told.error = error
        assert_valid(told)
        return told


def assert_valid(told: Told) -> None:
    """The flags of every record; nothing after a message's end, nor after the dialog's; each call has its result."""
    ended: set[object] = set()
    kinds: dict[object, str | None] = {}
    calls: dict[tuple[tuple[str, ...], str | None], str | None] = {}
    observed: set[object] = set()
    for number, record in enumerate(told.records):
        key = (record.path, record.message_id)
        assert record.message_id
        assert key not in ended, "a record after its message's end"
        assert kinds.setdefault(key, record.chunk_type) == record.chunk_type, "a message of two types"
        assert record.content is not None
        assert record.error is None
        last = number == len(told.records) - 1 and told.error is None
        assert bool(record.end_of_dialog) == last, "the last record, and no other, ends the dialog"
        if record.end_of_message:
            ended.add(key)
        if record.chunk_type == "action":
            assert record.end_of_message
            assert record.tool
            assert record.arguments is not None
            assert (record.path, record.call_id) not in calls, "a call's id occurs once"
            calls[record.path, record.call_id] = record.tool
        if record.chunk_type == "observation":
            assert calls[record.path, record.call_id] == record.tool, "an observation belongs to a call"
            observed.add((record.path, record.call_id))
        if not record.end_of_dialog:
            assert (record.in_token, record.out_token, record.model) == (None, None, None)
    if told.error is None:
        assert told.records[-1].chunk_type == "answer"
        assert told.records[-1].path == ()
        assert told.records[-1].end_of_message
        assert set(kinds) == ended, "every message has its end"
        assert set(calls) == observed, "every call has its result"


@asynccontextmanager
async def pipeline(
    llm: LlmService,
    folder: Path,
    config: str = BASE,
    *,
    bus: Bus | None = None,
    models: Mapping[str, LlmService] | None = None,
) -> AsyncIterator[Pipeline]:
    """A bus, a model, and the agents of a configuration. `models`: by flow, where they differ."""
    file = folder / "tg.toml"
    file.write_text(config)
    async with AsyncExitStack() as stack:
        if bus is None:
            bus = MemoryBus()
            stack.push_async_callback(bus.aclose)
        config_file = await stack.enter_async_context(ConfigWatcher(file, poll=0.01))
        topics = config_file.config.topics
        requestor = await stack.enter_async_context(Requestor(bus, topics))
        context = context_of(config_file, bus)
        await stack.enter_async_context(PromptKind().serve(context))
        await stack.enter_async_context(AgentKind().serve(context))
        for route in config_file.config.routes("text-completion"):  # last, so that the agents hear of them at once
            model = (models or {}).get(route.flow, llm)
            await stack.enter_async_context(Processor(bus, topics, model, (route,), grace=0.1))
        clients = {route.flow: Client(requestor, route) for route in config_file.config.routes("agent")}
        yield Pipeline(bus, clients)


async def tell(
    llm: LlmService,
    folder: Path,
    config: str = BASE,
    question: str = "q",
    *,
    models: Mapping[str, LlmService] | None = None,
    **more: Any,
) -> Told:
    """One dialog of a pipeline of its own."""
    async with pipeline(llm, folder, config, models=models) as it:
        return await it.tell(question, **more)
