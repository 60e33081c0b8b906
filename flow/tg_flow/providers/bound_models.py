"""Configuration -> the models that flows bind, and what each of them needs to serve."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from tg_base.config import Config, TextCompletionConfig
from tg_base.protocol import Route
from tg_schema import TEXT_COMPLETION, TgError
from tg_schema.errors import Internal

log = structlog.get_logger()

Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class ModelBinding:
    """What makes a processor: another provider, other options or other routes need another processor."""

    provider: str
    options: Mapping[str, Any]
    routes: tuple[Route[Any, Any], ...]


def bind_models(config: Config) -> dict[str, ModelBinding]:
    """What each bound model needs; one without a table is left out."""
    models = {model: config.models[model] for model in list_bound_models(config) if model in config.models}
    return {
        model: ModelBinding(table.provider, table.options, _routes_of(config, model)) for model, table in models.items()
    }


def list_bound_models(config: Config) -> list[str]:
    """The models that some flow binds, each once."""
    bound = config.bound(TextCompletionConfig).values()
    return list(dict.fromkeys(said.model for said in bound if said.model is not None and not said.plain))


def _routes_of(config: Config, model: str) -> tuple[Route[Any, Any], ...]:
    bound, routes = config.bound(TextCompletionConfig), config.routes(TEXT_COMPLETION.name)
    return tuple(route for route in routes if not route.plain and bound[route.flow].model == model)


async def open_model(
    config: Config, model: str, opener: Callable[[str, str, Mapping[str, Any]], Awaitable[Opened]]
) -> Opened:
    """Make one table of models ready.

    Raises:
        TgError: it cannot be; the message has its place in the file.
    """
    table = config.models[model]
    try:
        return await opener(table.provider, model, table.options)
    except TgError as error:
        raise config.locate(error, "models", model, otherwise=("provider",)) from None
    except Exception:  # a provider may be anybody's code; what serves beside it goes on
        log.exception("model.defect", model=model)
        defect = Internal(f'provider "{table.provider}" has a defect; the log says which')
        raise config.locate(defect, "models", model, otherwise=("provider",)) from None
