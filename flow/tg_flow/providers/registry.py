"""Configuration -> provider: the table of providers. Each is imported only when it is opened."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from tg_base.config import read_options
from tg_base.llm import LlmService, ProviderOptions
from tg_base.runtime import start_daemon_thread
from tg_flow.providers.on_demand_model import ServiceOutline
from tg_schema import TgError
from tg_schema.errors import BadRequest, NotFound, ProviderAuth, Unavailable
from tg_schema.features import Feature

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One provider.

    Attributes:
        place: its class, as "module:Class".
        install: the argument of `pip install`, for instance an extra of `tokengrid-flow`; "" = unknown.
        options: values that differ from the defaults of the class; the configuration overrides them.
    """

    place: str
    install: str
    options: Mapping[str, Any] = field(default_factory=dict)


_COMPATIBLE = "tg_flow.providers.openai:OpenAiCompatible"
_OPENAI_ITSELF = "tg_flow.providers.openai:OpenAi"
_OPENAI = "tokengrid-flow[openai]"


_SALTED: Mapping[str, Any] = {"salt_field": "cache_salt"}
"""vLLM's field; a server that refuses unknown fields needs `salt_field = ""`."""

_UNCERTAIN: tuple[Feature, ...] = ("n", "allowed_tools", "strict_tools", "parallel_tool_calls")
"""What many compatible servers ignore in silence."""


def _compatible(
    key: str,
    url: str,
    default: str | None = None,
    without: tuple[Feature, ...] = _UNCERTAIN,
    place: str = _COMPATIBLE,
    *,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> ProviderEntry:
    """A server with OpenAI's chat completions API that usually needs no key: its variables, default URL and gaps."""
    options = {"key_variables": (key,), "key_needed": False, "base_url_variables": (url,), "default_base_url": default}
    return ProviderEntry(place, _OPENAI, {**options, "without": without, **more})


_NEW_OPENAI = {
    "developer_role": True,
    "hint_fields": {"user": "safety_identifier", "cache_key": "prompt_cache_key"},
}
"""What OpenAI's current API has, and copies of it may not."""

_AZURE_AI = {
    "key_variables": ("AZURE_AI_API_KEY", "AZURE_TOKEN"),
    "base_url_variables": ("AZURE_AI_ENDPOINT", "AZURE_ENDPOINT"),
    "base_url_path": "/openai/v1",
    "without": ("top_k", "n", "allowed_tools"),
    "default_base_url": None,
}

PROVIDERS: dict[str, ProviderEntry] = {
    "anthropic": ProviderEntry("tg_flow.providers.anthropic:Anthropic", "tokengrid-flow[anthropic]"),
    "azure-ai": ProviderEntry(_OPENAI_ITSELF, _OPENAI, _AZURE_AI),
    "azure-openai": ProviderEntry("tg_flow.providers.openai:AzureOpenAi", _OPENAI),
    "bedrock": ProviderEntry("tg_bedrock:Bedrock", "tokengrid-bedrock"),
    "google-ai-studio": ProviderEntry("tg_flow.providers.gemini:GoogleAiStudio", "tokengrid-flow[google-ai-studio]"),
    "cohere": ProviderEntry("tg_flow.providers.cohere:Cohere", "tokengrid-flow[cohere]"),
    "llama-cpp": ProviderEntry("tg_llama:LlamaCpp", "tokengrid-serve[llama]"),
    "llamafile": _compatible(
        "LLAMAFILE_API_KEY", "LLAMAFILE_URL", "http://localhost:8080/v1", (*_UNCERTAIN, "reasoning")
    ),
    "lm-studio": _compatible(
        "LM_API_TOKEN", "LMSTUDIO_URL", "http://localhost:1234/v1", (*_UNCERTAIN, "reasoning", "json", "logprobs")
    ),
    "mistral": ProviderEntry("tg_flow.providers.mistral:Mistral", "tokengrid-flow[mistral]"),
    "ollama": ProviderEntry("tg_flow.providers.ollama:Ollama", "tokengrid-flow[ollama]"),
    "openai": ProviderEntry(_OPENAI_ITSELF, _OPENAI, _NEW_OPENAI),
    "openai-compatible": _compatible("OPENAI_COMPATIBLE_API_KEY", "OPENAI_COMPATIBLE_BASE_URL"),
    "pool": ProviderEntry("tg_picker.provider:Pool", "tokengrid-serve[picker]", {"without": _UNCERTAIN, **_SALTED}),
    "tgi": ProviderEntry("tg_flow.providers.openai:Tgi", _OPENAI),
    "vertexai-claude": ProviderEntry("tg_vertexai:VertexClaude", "tokengrid-vertexai"),
    "vertexai-gemini": ProviderEntry("tg_vertexai:VertexGemini", "tokengrid-vertexai"),
    "vllm": _compatible(
        "VLLM_API_KEY",
        "VLLM_BASE_URL",
        "http://localhost:8000/v1",
        without=("allowed_tools", "strict_tools"),
        place="tg_flow.providers.openai:Vllm",
        more=_SALTED,
    ),
}

_imported: set[str] = set()
"""Places that this process has imported: a thread for each of a hundred models would cost more than all the rest."""
_OURS = {"tg_schema", "tg_base", "tg_flow"}
"""Packages that are always installed with this file: a missing module of theirs is a defect, not a missing extra."""


async def open_provider(provider: str, model: str, table: Mapping[str, Any]) -> LlmService:
    """Open a provider for one model.

    Args:
        provider: a name of `PROVIDERS`, or "module:Class" of a third-party provider.
        model: the model's name in the configuration.
        table: the provider's table of options in the configuration.

    Raises:
        NotFound: no such provider; the message lists the known ones.
        BadRequest: an option is unknown or has a wrong value; the message names provider and field.
        Unavailable: the provider's SDK is not installed; the message has the command that installs it.
        TgError: the provider cannot be opened. Its `option` has the keys of the wrong value in the model's table, if
            known.
    """
    return await _with_class(provider, table, lambda kind, options: kind.open(model, options))


async def rehearse_provider(provider: str, model: str, table: Mapping[str, Any]) -> None:
    """Open a provider as far as possible without loading weights. Arguments and errors as `open_provider`."""
    await _with_class(provider, table, lambda kind, options: kind.rehearse(model, options))


async def outline_provider(provider: str, model: str, table: Mapping[str, Any]) -> ServiceOutline:
    """What is known of a provider before it is opened. Arguments and errors as `open_provider`, without the SDK's."""

    async def outline(kind: type[LlmService], options: ProviderOptions) -> ServiceOutline:
        return ServiceOutline(kind.find_capacity(options), kind.find_features(options), kind.find_adapters(options))

    return await _with_class(provider, table, outline)


async def _with_class(
    provider: str,
    table: Mapping[str, Any],
    use: Callable[[type[LlmService], ProviderOptions], Awaitable[Result]],
) -> Result:
    row = _row(provider)
    try:
        if row.place in _imported:
            kind = _load(provider, row)
        else:
            # In a thread: an import may take seconds. The process may end meanwhile.
            kind = await start_daemon_thread(lambda: _load(provider, row), f"import {provider}")
            _imported.add(row.place)
        options = _options(provider, kind, {**row.options, **table})
        with _blaming_options():
            return await use(kind, options)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in _OURS:
            raise
        lacking = f'install the distribution that has the module "{error.name}", or put its folder on PYTHONPATH'
        what = f'run: pip install "{row.install}"' if row.install else lacking
        raise Unavailable(f'provider "{provider}" needs a package that is not installed; {what}') from None


def find_native_features(provider: str, table: Mapping[str, Any]) -> frozenset[Feature]:
    """The provider's features with these options; imports but does not open it. Raises as `open_provider`."""
    row = _row(provider)
    service = _load(provider, row)
    return service.find_native_features(_options(provider, service, {**row.options, **table}))


def _row(provider: str) -> ProviderEntry:
    row = PROVIDERS.get(provider)
    if row is not None:
        return row
    module, colon, name = provider.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        known = ", ".join(sorted(PROVIDERS))
        raise NotFound(
            f'there is no provider "{provider}"; known are {known}, and any class of yours as "module:Class"'
        )
    return ProviderEntry(provider, install="")


def _load(provider: str, row: ProviderEntry) -> type[LlmService]:
    module, _, name = row.place.partition(":")
    kind: object = getattr(import_module(module), name, None)
    if not isinstance(kind, type) or not issubclass(kind, LlmService):
        raise BadRequest(f'provider "{provider}": {row.place} is not a subclass of tg_base.llm.LlmService')
    return kind


def _options(provider: str, service: type[LlmService], table: Mapping[str, Any]) -> ProviderOptions:
    with _blaming_options():
        return read_options(table, service.Options, f'provider "{provider}"')


@contextmanager
def _blaming_options() -> Iterator[None]:
    try:
        yield
    except ProviderAuth as error:
        raise error.at("options", *(() if error.option else ("key_variable",))) from None
    except TgError as error:
        raise (error.at("options") if error.option else error) from None
