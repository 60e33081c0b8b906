"""[flows.NAME.text-completion] -> running processors: one for each model that a flow binds."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from typing_extensions import override

from tg_base.config import Config, Findings, TextCompletionConfig
from tg_base.server import Opened, ServeContext, ServiceKind
from tg_flow.providers.registry import open_provider, rehearse_provider
from tg_schema import TgError

Made = TypeVar("Made")


class TextCompletionKind(ServiceKind):
    """Text completion: each bound model is opened once, and answers the queues of all flows that bind it."""

    table = TextCompletionConfig

    @override
    async def open(self, context: ServeContext, stack: AsyncExitStack) -> AsyncGenerator[Opened, None]:
        bound = context.config.bound(TextCompletionConfig)
        for model in _list_models(context.config):
            routes = tuple(route for route in self.routes(context.config) if bound[route.flow].model == model)
            yield Opened(await _make(context.config, model, open_provider), routes, (model,))

    @override
    async def rehearse(self, context: ServeContext, findings: Findings) -> None:
        """Make every bound model ready, short of loading weights. One without a table is the reader's finding."""
        for model in [model for model in _list_models(context.config) if model in context.config.models]:
            with findings.collect():
                await _make(context.config, model, rehearse_provider)

    @override
    def summarize(self, config: Config) -> str:
        bound = [said.model for said in config.bound(TextCompletionConfig).values()]
        models = [f"{model} of {config.models[model].provider}" for model in bound if model is not None]
        return ", ".join(dict.fromkeys(models)) or "no flow has a model"


def _list_models(config: Config) -> list[str]:
    """The models that some flow binds, each once."""
    bound = config.bound(TextCompletionConfig).values()
    return list(dict.fromkeys(said.model for said in bound if said.model is not None and not said.plain))


async def _make(config: Config, model: str, opener: Callable[[str, str, Mapping[str, Any]], Awaitable[Made]]) -> Made:
    """Make one table of models ready; an error has its place in the file."""
    table = config.models[model]
    try:
        return await opener(table.provider, model, table.options)
    except TgError as error:
        raise config.locate(error, "models", model, otherwise=("provider",)) from None
