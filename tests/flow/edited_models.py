"""A file of models, who watches it, and providers of one word each."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from structlog.testing import capture_logs
from typing_extensions import override

from tests.flow.patient_timing import PatientTiming
from tests.flow.serve_context import context_of
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Client, Requestor
from tg_base.config import ConfigWatcher
from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.protocol import HeartbeatTiming
from tg_flow.providers import TextCompletionKind
from tg_schema import TEXT_COMPLETION, TextCompletionRequest
from tg_schema.errors import Unavailable

PROVIDER = "tests.flow.edited_models:OneWord"


LIVELY = HeartbeatTiming(interval=0.05)


class OneWord(LlmService):
    """A provider at the edge of the world: says its word twice, with a pause where the prompt is "wait"."""

    class Options(ProviderOptions, frozen=True):
        """What the file says."""

        word: str
        fails: bool = False

    gate: ClassVar[asyncio.Event]
    broken: ClassVar[set[str]] = set()
    rehearsed: ClassVar[list[str]]
    opening: ClassVar[list[str]]
    opened: ClassVar[list[str]]
    closed: ClassVar[list[str]]

    def __init__(self, model: str, options: ProviderOptions | None = None) -> None:
        super().__init__(model, options)
        assert isinstance(options, OneWord.Options)
        self.word = options.word

    @classmethod
    @override
    async def open(cls, model: str, options: ProviderOptions) -> Self:
        it = cls(model, options)
        assert isinstance(options, OneWord.Options)
        cls.opening.append(it.word)
        if options.word == "hangs":
            await asyncio.Event().wait()
        if options.word == "meets":
            await until(lambda: len(cls.opening) == 2)
        if options.word == "defect":
            raise RuntimeError("a defect")
        if options.word in cls.broken:
            raise Unavailable("the weights are gone")
        if options.fails:
            raise Unavailable("the weights are broken").at("word")
        cls.opened.append(it.word)
        return it

    @classmethod
    @override
    async def rehearse(cls, model: str, options: ProviderOptions) -> None:
        """As where only the weights would tell."""
        assert isinstance(options, OneWord.Options)
        cls.rehearsed.append(options.word)

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        yield LlmChunk(text=f"{self.word} ")
        if request.prompt == "wait":
            await self.gate.wait()
        yield LlmChunk(text=self.word, finish_reason="stop")

    @override
    async def aclose(self) -> None:
        self.closed.append(self.word)
        if self.word == "unclosable":
            raise RuntimeError("a defect")


def table(name: str, word: str, more: str = "") -> str:
    head = f'[models.{name}]\nprovider = "{PROVIDER}"\n'
    return f'{head}[models.{name}.options]\nword = "{word}"\n{more}\n'


FLOWS = '[flows]\nf.text-completion.model = "m"\ng.text-completion.model = "n"\n'


FLOWS_OF_ONE = '[flows]\nf.text-completion.model = "m"\n'


LAZY_WITHOUT_FILE = """[models.m]
provider = "llama-cpp"
lazy = true
options.path = "/nowhere.gguf"
"""


SERVED = table("m", "old") + table("n", "other") + FLOWS


def write(file: Path, text: str) -> None:
    """As editors do it, in one step."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


@dataclass
class Served:
    """The file, who watches it, and a client for each flow."""

    file: Path
    watcher: ConfigWatcher
    requestor: Requestor
    clients: dict[str, Client[Any, Any]]
    logs: list[MutableMapping[str, Any]]

    def know(self, flow: str) -> None:
        """Have a client for a flow that an edit has added."""
        routes = {route.flow: route for route in self.watcher.config.routes(TEXT_COMPLETION.name)}
        self.clients[flow] = Client(self.requestor, routes[flow])

    async def say(self, flow: str = "f") -> str:
        return str((await self.clients[flow].call(TextCompletionRequest(prompt="x"))).response)

    async def told(self, event: str) -> MutableMapping[str, Any]:
        # In each turn of the loop: what the line says must hold in the very turn in which it is logged.
        while not any(line["event"] == event for line in self.logs):  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0)
        return next(line for line in self.logs if line["event"] == event)


@asynccontextmanager
async def serving(file: Path, retry: float = 30.0) -> AsyncIterator[Served]:
    bus = MemoryBus()
    with capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            config = config_file.config
            async with (
                TextCompletionKind(retry).serve(context_of(config_file, bus, LIVELY)),
                Requestor(bus, config.topics, timing=PatientTiming(LIVELY.interval)) as requestor,
            ):
                routes = config.routes(TEXT_COMPLETION.name)
                it = Served(file, config_file, requestor, {}, logs)
                for route in routes:
                    it.know(route.flow)
                yield it
    await bus.aclose()
