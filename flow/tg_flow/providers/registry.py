"""Configuration -> provider: found by its entry point, and imported only when it is opened."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, TypeVar, cast

from tg_base.config import read_options
from tg_base.llm import LlmService, Preset, ProviderOptions
from tg_base.runtime import explaining_absence, find_entry_point, load_object, start_daemon_thread
from tg_flow.providers.on_demand_model import ServiceOutline
from tg_schema import TgError
from tg_schema.errors import BadRequest, NotFound, ProviderAuth, Unavailable

Result = TypeVar("Result")


GROUP = "tokengrid.providers"
"""The group of entry points with which packages offer providers, ours and others' alike."""
OTHER_HOUSES = {
    "bedrock": "tokengrid-bedrock",
    "demo": "tokengrid-llama",
    "llama-cpp": "tokengrid-serve[llama]",
    "pool": "tokengrid-serve[picker]",
    "vertexai-claude": "tokengrid-vertexai",
    "vertexai-gemini": "tokengrid-vertexai",
}
"""Providers of ours that may not be installed -> what `pip install` is given."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One that is imported.

    Attributes:
        name: its name in the configuration.
        point: the entry point that led to it.
        preset: its class, and the defaults of its options.
    """

    name: str
    point: EntryPoint
    preset: Preset

    @property
    def kind(self) -> type[LlmService]:
        """Its class."""
        return self.preset.kind

    def options(self, table: Mapping[str, Any]) -> ProviderOptions:
        """Its options by a table of the configuration.

        Raises:
            BadRequest: an option is unknown or has a wrong value; the message names provider and field.
        """
        with _blaming_options():
            return read_options({**self.preset.options, **table}, self.kind.Options, f'provider "{self.name}"')


_imported: dict[str, Provider] = {}
"""What this process has imported: a thread for each of a hundred models would cost more than all the rest."""


async def open_provider(provider: str, model: str, table: Mapping[str, Any]) -> LlmService:
    """Open a provider for one model.

    Args:
        provider: the name of an entry point, or "module:Class" of any class.
        model: the model's name in the configuration.
        table: the provider's table of options in the configuration.

    Raises:
        NotFound: no such provider; the message lists the known ones.
        BadRequest: an option is unknown or has a wrong value; the message names provider and field.
        Unavailable: the provider's SDK is not installed; the message has the command that installs it.
        TgError: the provider cannot be opened. Its `option` has the keys of the wrong value in the model's table, if
            known.
    """
    opened = await _with_class(provider, table, lambda kind, options: kind.open(model, options))
    opened.provider = provider
    return opened


async def rehearse_provider(provider: str, model: str, table: Mapping[str, Any]) -> None:
    """Open a provider as far as possible without loading weights. Arguments and errors as `open_provider`."""
    await _with_class(provider, table, lambda kind, options: kind.rehearse(model, options))


async def outline_provider(provider: str, model: str, table: Mapping[str, Any]) -> ServiceOutline:
    """What is known of a provider before it is opened. Arguments and errors as `open_provider`, without the SDK's."""

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
        # An import may take seconds: it runs in a daemon thread, so the process can exit meanwhile.
        _imported[provider] = await start_daemon_thread(lambda: load_provider(provider), f"import {provider}")
    found = _imported[provider]
    with explaining_absence(f'provider "{provider}"', found.point):
        options = found.options(table)
        with _blaming_options():
            return await use(found.kind, options)


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
    return Provider(name, point, preset)


@contextmanager
def _blaming_options() -> Iterator[None]:
    try:
        yield
    except ProviderAuth as error:
        raise error.at("options", *(() if error.option else ("key_variable",))) from None
    except TgError as error:
        raise (error.at("options") if error.option else error) from None
