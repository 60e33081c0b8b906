"""One provider's place in the matrix: its row of the registry, its wire, and what its wire tells."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from tests.fakes.plan import Wire
from tests.flow.known_providers import native_features
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_schema.features import Feature

Tells = Literal[
    "cached",
    "cache_write",
    "reasoning",
    "reasoning_count",
    "rounds",
    "call_ids",
    "tool_choice",
    "parallel_calls",
    "retry_after",
    "error_event",
    "image_urls",
    "models",
]
"""What a wire may carry or not, other than features of a request:

cached, cache_write and reasoning_count: these parts of the usage; reasoning: the thinking's text, apart from the
answer;
rounds: that thinking, or a signature, which the provider gets back unchanged with the results of its calls;
call_ids: ids of tool calls; tool_choice: that a tool must be called (where not, that is refused);
parallel_calls: more than one call in an answer;
retry_after: how long to wait; error_event: an error in a stream that began well;
image_urls: pictures by URL (where not, they are refused); models: a list of models."""

TELLS: frozenset[Tells] = frozenset(get_args(Tells))

MODEL = "fake-model"
"""The model that every wire knows, and the only one."""


@dataclass(frozen=True)
class Case:
    """A provider, and how to reach its wire's loopback server.

    Attributes:
        provider: its name in the registry.
        wire: opens the loopback server, for instance `AnthropicServer.running`.
        options: the configuration's options for a server at this URL.
        environment: variables for a server at this URL; keys, for instance.
        tells: what this wire carries.
        thinking: further options with which the model thinks, where the wire knows that.
        own: for a provider without a wire, in this process: the cells that have a meaning for it, by name.
    """

    provider: str
    wire: Callable[[], AbstractAsyncContextManager[Wire]]
    options: Callable[[str], Mapping[str, Any]]
    environment: Callable[[str], Mapping[str, str]] = field(default=lambda url: {})
    tells: frozenset[Tells] = TELLS
    own: Mapping[str, "Run"] = field(default_factory=dict)
    thinking: Mapping[str, Any] = field(default_factory=dict)

    @property
    def features(self) -> frozenset[Feature]:
        """What the provider announces."""
        return native_features(self.provider, self.options("http://127.0.0.1:9"))


@dataclass(frozen=True)
class Stage:
    """A case with its server running and its environment set."""

    case: Case
    wire: Wire

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[LlmService]:
        """The provider as the registry opens it for a configuration, tried once for each request by default."""
        table = {"tries": 1, **self.case.options(self.wire.url), **options}
        service = await open_provider(self.case.provider, MODEL, table)
        try:
            yield service
        finally:
            await service.aclose()


Run = Callable[[Stage], Awaitable[None]]


@asynccontextmanager
async def staged(case: Case) -> AsyncIterator[Stage]:
    """Run the case's server, in its environment."""
    async with case.wire() as wire:
        with _environment(case.environment(wire.url)):
            yield Stage(case, wire)


def cases() -> tuple[Case, ...]:
    """All cases: the `CASES` of each module in `families/`, a file for each wire."""
    folder = Path(__file__).parent / "families"
    modules = [import_module(f"tests.provider_matrix.families.{file.stem}") for file in sorted(folder.glob("*.py"))]
    found: list[Case] = [case for module in modules for case in module.CASES]
    return tuple(sorted(found, key=lambda case: case.provider))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
