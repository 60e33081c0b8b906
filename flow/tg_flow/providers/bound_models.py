"""Configuration -> the models that flows bind, each with its provider, options and routes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from tg_base.config import Config, TextCompletionConfig
from tg_base.protocol import Route
from tg_base.runtime import translate_defects
from tg_schema import TEXT_COMPLETION, TgError
from tg_schema.errors import Internal

log = structlog.get_logger()

Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class ModelBinding:
    """The inputs of a processor; if one of them changes, the processor must be replaced."""

    provider: str
    options: Mapping[str, Any]
    routes: tuple[Route[Any, Any], ...]
    on_demand: bool = False
    unload_after: float = 0.0


def bind_models(config: Config) -> dict[str, ModelBinding]:
    """The binding of each bound model; models without a table are omitted."""
    models = {model: config.models[model] for model in list_bound_models(config) if model in config.models}
    return {
        model: ModelBinding(
            table.provider, table.options, _routes_of(config, model), table.on_demand, table.unload_after
        )
        for model, table in models.items()
    }


def list_bound_models(config: Config) -> list[str]:
    """The models that at least one flow binds, without duplicates."""
    bound = config.bound(TextCompletionConfig).values()
    return list(dict.fromkeys(said.model for said in bound if said.model is not None and not said.plain))


def _routes_of(config: Config, model: str) -> tuple[Route[Any, Any], ...]:
    bound, routes = config.bound(TextCompletionConfig), config.routes(TEXT_COMPLETION.name)
    return tuple(route for route in routes if not route.plain and bound[route.flow].model == model)


async def open_model(
    config: Config, model: str, opener: Callable[[str, str, Mapping[str, Any]], Awaitable[Opened]]
) -> Opened:
    """Open one table of models by `opener`.

    Raises:
        TgError: it cannot be opened; the message has its position in the file.
    """
    table = config.models[model]
    defect = f'provider "{table.provider}" has a defect; the log says which'
    try:
        # A provider may be third-party code; its defects must not stop the services beside it.
        with translate_defects(Internal, defect, "model.defect", log.bind(model=model)):
            return await opener(table.provider, model, table.options)
    except TgError as error:
        raise config.locate(error, "models", model, otherwise=("provider",)) from None
