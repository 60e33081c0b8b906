"""Configuration -> the models that flows bind, each with its provider, options and routes."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import structlog

from tg_base.config import Config, TextCompletionConfig
from tg_base.protocol import Route
from tg_base.runtime import translate_defects
from tg_schema import TEXT_COMPLETION, TgError
from tg_schema.errors import Internal, Unavailable

log = structlog.get_logger()

Opened = TypeVar("Opened")


@dataclass(frozen=True, slots=True)
class ModelBinding:
    """The inputs of a model's processor. If one of them changes, the processor must be replaced."""

    provider: str
    options: Mapping[str, Any]
    routes: tuple[Route[Any, Any], ...]
    on_demand: bool = False
    """Whether the model is opened for its first request."""
    unload_after: float | None = None
    """Seconds without a request after which an on-demand model is closed again; None = never."""


def bind_models(config: Config) -> dict[str, ModelBinding]:
    """The binding of each bound model; models without a table in the configuration are omitted."""
    models = {model: config.models[model] for model in list_bound_models(config) if model in config.models}
    routes = _group_routes(config)
    return {
        model: ModelBinding(
            table.provider,
            find_options(config, model),
            tuple(routes[model]),
            table.on_demand or table.lazy,
            table.unload_after if table.on_demand else None,
        )
        for model, table in models.items()
    }


def find_options(config: Config, model: str) -> Mapping[str, Any]:
    """A model's options. A model with fallbacks in a route is tried only once, unless its table sets `tries`."""
    options = config.models[model].options
    followed = any(model in {queue.model for queue in plan.followed} for plan in config.plans.values())
    return {"tries": 1, **options} if followed else options


def list_bound_models(config: Config) -> list[str]:
    """The models that at least one flow binds, without duplicates."""
    bound = config.bound(TextCompletionConfig).values()
    return list(dict.fromkeys(service.model for service in bound if service.model is not None and not service.plain))


def _group_routes(config: Config) -> dict[str | None, list[Route[Any, Any]]]:
    """The routes of each bound model."""
    bound, found = config.bound(TextCompletionConfig), defaultdict[str | None, list[Route[Any, Any]]](list)
    for route in config.routes(TEXT_COMPLETION.name):
        if not route.plain:
            found[bound[route.flow].model].append(route)
    return found


async def open_model(
    config: Config, model: str, opener: Callable[[str, str, Mapping[str, Any]], Awaitable[Opened]]
) -> Opened:
    """Open the model of one table of the configuration by `opener`.

    Raises:
        TgError: the model cannot be opened; the message has its position in the file.
    """
    try:
        return await _open_table(config, model, opener)
    except TgError as error:
        raise _locate(config, model, error) from None


async def open_for_request(
    config: Config, model: str, opener: Callable[[str, str, Mapping[str, Any]], Awaitable[Opened]]
) -> Opened:
    """Open the model of one table by `opener`, because a client's request needs it.

    Raises:
        TgError: the model cannot be opened. The position in the file goes only to the log.
        Unavailable: the model's options are wrong. The client did not write them, and may not see them.
    """
    try:
        return await _open_table(config, model, opener)
    except TgError as error:
        log.error("model.failed", model=model, reason=_locate(config, model, error).message)
        if error.status < HTTPStatus.INTERNAL_SERVER_ERROR and not error.retryable:
            raise Unavailable("the model cannot be opened; the log of its processor says why") from None
        raise


async def _open_table(
    config: Config, model: str, opener: Callable[[str, str, Mapping[str, Any]], Awaitable[Opened]]
) -> Opened:
    table = config.models[model]
    defect = f'provider "{table.provider}" has a defect; the log says which'
    # A provider may be third-party code. Its defects must not stop the other services of this process.
    with translate_defects(Internal, defect, "model.defect", log.bind(model=model)):
        return await opener(table.provider, model, find_options(config, model))


def _locate(config: Config, model: str, error: TgError) -> TgError:
    return config.locate(error, "models", model, otherwise=("provider",))
