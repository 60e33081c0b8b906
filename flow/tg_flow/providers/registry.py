"""Configuration -> provider: the providers as rows of data, each imported only when it is opened."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import msgspec

from tg_base.llm_service import LlmService, ProviderOptions
from tg_schema.errors import BadRequest, NotFound, Unavailable


@dataclass(frozen=True, slots=True)
class Row:
    """One provider: where its class is, and the extra of `tg-flow` that brings its SDK."""

    module: str
    name: str
    extra: str


PROVIDERS: dict[str, Row] = {
    "llama-cpp": Row("tg_flow.providers.llama_cpp", "LlamaCpp", "llama-cpp"),
    "openai": Row("tg_flow.providers.openai_compatible", "OpenAiCompatible", "openai"),
}


async def open_provider(provider: str, model: str, table: Mapping[str, Any]) -> LlmService:
    """Open a provider for one model.

    Args:
        provider: a name of `PROVIDERS`.
        model: the name that the service answers to.
        table: the provider's options as the configuration has them.

    Raises:
        NotFound: no such provider; the message lists the known ones.
        BadRequest: an option is unknown or has a wrong value; the message names provider and field.
        Unavailable: the provider's SDK is not installed; the message has the command that installs it.
        TgError: the provider cannot be made ready.
    """
    row = PROVIDERS.get(provider)
    if row is None:
        raise NotFound(f'there is no provider "{provider}"; known are {", ".join(sorted(PROVIDERS))}')
    try:
        service = await asyncio.to_thread(_load, row)
        return await service.open(model, _options(provider, service, table))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("tg_"):
            raise
        raise Unavailable(
            f'provider "{provider}" needs a package that is not installed; run: pip install "tg-flow[{row.extra}]"'
        ) from None


def _load(row: Row) -> type[LlmService]:
    kind: object = getattr(import_module(row.module), row.name)
    if not isinstance(kind, type) or not issubclass(kind, LlmService):
        raise TypeError(f"{row.module}.{row.name} is not an LlmService")
    return kind


def _options(provider: str, service: type[LlmService], table: Mapping[str, Any]) -> ProviderOptions:
    try:
        return msgspec.convert(table, service.Options)
    except msgspec.ValidationError as error:
        raise BadRequest(f'provider "{provider}": {error}') from None
