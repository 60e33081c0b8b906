"""Configuration -> provider: found by its entry point, and imported only when it is opened."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from typing import Any, NamedTuple, TypeVar, cast

from tg_base.config import read_options
from tg_base.llm import LlmService, Preset, ProviderOptions
from tg_base.runtime import explaining_absence, find_entry_point, load_object, start_daemon_thread
from tg_flow.providers.on_demand_model import ServiceOutline
from tg_schema import TgError
from tg_schema.errors import BadRequest, NotFound, ProviderAuth, Unavailable

Result = TypeVar("Result")


GROUP = "tokengrid.providers"
"""The entry point group with which packages offer providers, ours and others'."""
OTHER_HOUSES = {
    "bedrock": "tokengrid-bedrock",
    "demo": "tokengrid-llama",
    "llama-cpp": "tokengrid-serve[llama]",
    "pool": "tokengrid-serve[picker]",
    "vertexai-claude": "tokengrid-vertexai",
    "vertexai-gemini": "tokengrid-vertexai",
}
"""Our providers in packages that may not be installed -> the package to install."""


class Provider(NamedTuple):
    """An imported provider: the entry point that led to it, its class, and the defaults of its options."""

    point: EntryPoint
    kind: type[LlmService]
    defaults: Mapping[str, Any]


_imported: dict[str, Provider] = {}
"""The providers that this process has imported. A thread per import, for each of a hundred models, would be slow."""


async def open_provider(provider: str, model: str, table: Mapping[str, Any]) -> LlmService:
    """Open a provider for one model.

    Args:
        provider: the name of an entry point, or "module:Class" of any class.
        model: the model's name in the configuration.
        table: the provider's table of options in the configuration.

    Raises:
        NotFound: there is no such provider; the message lists the known ones.
        BadRequest: an option is unknown or has a wrong value; the message names provider and field.
        Unavailable: the provider's SDK is not installed; the message has the command that installs it.
        TgError: the provider cannot be opened. If known, the error's `option` has the keys of the wrong value in the
            model's table.
    """
    opened = await _with_class(provider, table, lambda kind, options: kind.open(model, options))
    opened.provider = provider
    return opened


async def rehearse_provider(provider: str, model: str, table: Mapping[str, Any]) -> None:
    """Open a provider as far as possible, but do not load weights. Arguments and errors as for `open_provider`."""
    await _with_class(provider, table, lambda kind, options: kind.rehearse(model, options))


async def outline_provider(provider: str, model: str, table: Mapping[str, Any]) -> ServiceOutline:
    """What is known of a provider before it is opened. Arguments and errors as for `open_provider`, but no SDK's."""

    async def outline(kind: type[LlmService], options: ProviderOptions) -> ServiceOutline:
        capacity, features = kind.find_capacity(options), kind.find_features(options)
        return ServiceOutline(provider, capacity, features, kind.find_adapters(options))

    return await _with_class(provider, table, outline)


async def _with_class(
    provider: str,
    table: Mapping[str, Any],
    use: Callable[[type[LlmService], ProviderOptions], Awaitable[Result]],
) -> Result:
    if provider not in _imported:
        # An import may take seconds. Run it in a daemon thread, so that the process can exit meanwhile.
        _imported[provider] = await start_daemon_thread(lambda: load_provider(provider), f"import {provider}")
    point, kind, defaults = _imported[provider]
    with explaining_absence(f'provider "{provider}"', point), _blaming_options():
        options: ProviderOptions = read_options({**defaults, **table}, kind.Options, f'provider "{provider}"')
        return await use(kind, options)


def load_provider(name: str) -> Provider:
    """Import a provider. Raises as `open_provider`."""
    owner = f'provider "{name}"'
    try:
        point = find_entry_point(GROUP, name, "provider", "module:Class", OTHER_HOUSES)
    except NotFound:
        if name not in OTHER_HOUSES:
            raise
        requirement = OTHER_HOUSES[name]
        raise Unavailable(f'{owner} needs a package that is not installed; run: pip install "{requirement}"') from None
    with explaining_absence(owner, point):
        found = load_object(point)
    preset = found if isinstance(found, Preset) else Preset(cast(type[LlmService], found))
    if not isinstance(preset.kind, type) or not issubclass(preset.kind, LlmService):
        raise BadRequest(f"{owner}: {point.value} is not a subclass of tg_base.llm.LlmService or a Preset")
    return Provider(point, preset.kind, preset.options)


@contextmanager
def _blaming_options() -> Iterator[None]:
    try:
        yield
    except ProviderAuth as error:
        raise error.at("options", *(() if error.option else ("key_variable",))) from None
    except TgError as error:
        raise (error.at("options") if error.option else error) from None
