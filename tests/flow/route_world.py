"""Models a, b and c, each with a processor, and the routes that a test writes: asked by a requestor in this process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.fakes.unconfirming_bus import UnconfirmingBus
from tests.fakes.unreliable_llm import UnreliableLlm
from tg_base.client import Client, Requestor
from tg_base.config import Config, RouteConfig, ServiceConfig, TextCompletionConfig
from tg_base.server import Processor
from tg_schema import COMMON_FEATURES, TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse

MODELS = ("a", "b", "c")


def configure(routes: dict[str, RouteConfig]) -> Config:
    """A flow for each model."""
    flows: dict[str, dict[str, ServiceConfig]] = {
        model: {"text-completion": TextCompletionConfig(model=model)} for model in MODELS
    }
    return Config(flows=flows, model_routes=routes)


@dataclass
class RouteWorld:
    """What a test needs of it."""

    config: Config
    requestor: Requestor
    models: dict[str, UnreliableLlm]
    processors: dict[str, AsyncExitStack]
    bus: UnconfirmingBus

    def client(self, route: str = "r", *, bounded: bool = False) -> Client[Any, Any]:
        return Client(self.requestor, self.requestor.routes.named[route].entry, bounded=bounded)

    async def ask(
        self, prompt: str = "1", route: str = "r", *, streaming: bool = False, **fields: Any
    ) -> TextCompletionResponse:
        """The whole answer. The prompt is how many words it has."""
        request = TextCompletionRequest(prompt=prompt, streaming=streaming, **fields)
        whole: TextCompletionResponse = await self.client(route).call(request)
        return whole

    async def read(self, request: TextCompletionRequest, texts: list[str]) -> None:
        """Add the texts of an answer as they come."""
        async with self.client().stream(request) as records:
            while (record := await anext(records, None)) is not None:
                texts.append(record.response or "")

    def queue(self, model: str) -> str:
        """The request topic of a model."""
        return next(each.request for each in self.config.routes(TEXT_COMPLETION.name) if each.flow == model)

    def counts(self) -> dict[str, int]:
        """How often each model was asked."""
        return {name: len(llm.requests) for name, llm in self.models.items() if llm.requests}

    def states(self, route: str = "r") -> dict[str, str]:
        return {each.model: each.state for each in self.requestor.routes.explain(route)}


@asynccontextmanager
async def opened(
    *, absent: str = "", toolless: str = "", capacity: int = 256, **routes: RouteConfig
) -> AsyncIterator[RouteWorld]:
    """Everything in one process; models in `absent` have no processor, those in `toolless` know no tools."""
    config, bus = configure(routes), UnconfirmingBus()
    models = {name: UnreliableLlm(name) for name in MODELS}
    queues = {route.flow: route for route in config.routes(TEXT_COMPLETION.name)}
    async with AsyncExitStack() as stack:
        processors = {name: await stack.enter_async_context(AsyncExitStack()) for name in MODELS if name not in absent}
        for name, own in processors.items():
            models[name].capacity = capacity
            models[name].features = COMMON_FEATURES | {"adapter", "load_adapter"}
            models[name].features -= {"tools"} if name in toolless else set()
            served = Processor(bus, config.topics, models[name], (queues[name],), models=(name,), grace=0.05)
            await own.enter_async_context(served)
        requestor = Requestor(bus, config.topics, queues=(queues["a"].request,), plans=config.plans)
        await stack.enter_async_context(requestor)
        for name in processors:
            await requestor.until_served(queues[name])
        yield RouteWorld(config, requestor, models, processors, bus)
    await bus.aclose()
