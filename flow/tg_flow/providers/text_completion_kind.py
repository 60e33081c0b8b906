"""[flows.NAME.text-completion] -> running processors, one for each bound model."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog
from typing_extensions import override

from tg_base.config import Config, Findings, TextCompletionConfig
from tg_base.server import Processor, ServeContext, ServiceKind
from tg_flow.providers.bound_models import bind_models, list_bound_models, open_model
from tg_flow.providers.model_processors import RETRY_SECONDS, ModelProcessors
from tg_flow.providers.registry import outline_provider, rehearse_provider
from tg_schema import TgError

log = structlog.get_logger()


async def warn_of_lacks(config: Config) -> None:
    """Warn if a model of a route lacks features that the route's first model announces. No model is opened."""
    for name, plan in config.plans.items():
        features = {}
        for model in filter(None, (queue.model for queue in plan.queues if queue.model in config.models)):
            # Ignore errors here: they are reported where the model is opened.
            with suppress(TgError):
                features[model] = (await open_model(config, model, outline_provider)).features
        first = next(iter(features.values()), frozenset())
        for model, others in features.items():
            if lacks := first - others:
                log.warning(
                    "route.lacks", route=name, model=model, lacks=sorted(lacks), at=config.where("routes", name)
                )


class TextCompletionKind(ServiceKind):
    """Text completion. Each bound model is opened once, and serves the queues of all flows that bind it.

    Edits of models and bindings take effect while it runs.

    Args:
        retry: seconds before a model that could not be opened at the start is tried again.
    """

    table = TextCompletionConfig

    def __init__(self, retry: float = RETRY_SECONDS) -> None:
        self._retry = retry
        self._models: ModelProcessors | None = None

    @override
    @asynccontextmanager
    async def serve(self, context: ServeContext) -> AsyncIterator[tuple[Processor, ...]]:
        await warn_of_lacks(context.config)
        models = ModelProcessors(context, self._retry)
        known = context.config.plans

        async def prepare(config: Config) -> Callable[[], None]:
            nonlocal known
            commit = await models.prepare(config)
            if config.plans != known:
                known = config.plans
                await warn_of_lacks(config)
            return commit

        with context.follow(prepare):
            async with models.serve():
                self._models = models
                yield models.processors

    @override
    async def rehearse(self, context: ServeContext, findings: Findings) -> None:
        """Rehearse every bound model. A model without a table is skipped: reading the configuration has reported it."""
        for model in [model for model in list_bound_models(context.config) if model in context.config.models]:
            with findings.collect():
                await open_model(context.config, model, rehearse_provider)
        await warn_of_lacks(context.config)

    @override
    def summarize(self, config: Config) -> str:
        """The bound models.

        While it serves, models that could not be opened are listed separately.
        """
        models = {model: f"{model} of {binding.provider}" for model, binding in bind_models(config).items()}
        failed = [models.pop(model) for model in (self._models.failed if self._models else ()) if model in models]
        said = ", ".join(models.values()) or "no flow has a model"
        return f"{said}; failed, see the log: {', '.join(failed)}" if failed else said
