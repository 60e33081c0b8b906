"""Configuration tables that become providers, or one clear error."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Generic

import pytest
from typing_extensions import TypeVar, override

from tests.flow.known_providers import PLACES, PROVIDERS
from tests.installed_package import install_package
from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.llm.guard import Clocks
from tg_flow.providers import open_provider
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.registry import OTHER_HOUSES, load_provider
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest, NotFound, ProviderAuth, Unavailable


async def test_a_table_becomes_a_provider() -> None:
    table = {"base_url": "http://127.0.0.1:9/v1", "key_variable": "", "tries": 5, "clocks": {"idle": 7}}
    provider = await open_provider("openai", "small", table)
    try:
        assert isinstance(provider, OpenAiCompatible)
        assert (provider.model, provider.tries, provider.clocks) == ("small", 5, Clocks(idle=7))
        assert provider.supports_streaming()
    finally:
        await provider.aclose()


async def test_an_unknown_provider_lists_the_known_ones() -> None:
    with pytest.raises(NotFound, match=r'no provider "opnai"; known are .*llama-cpp, .*openai, .*"module:Class"'):
        await open_provider("opnai", "small", {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"base_ulr": "x"}, 'unknown field "base_ulr" in its options; did you mean "base_url"?'),
        ({"base_url": 5}, "base_url must be text, not a whole number"),
        ({"temperature": 3.0}, "temperature must be a number <= 2.0"),
        ({"max_tokens": 0}, "max_tokens must be a whole number >= 1"),
        ({"max_tokens_field": "length"}, 'max_tokens_field must be one of "max_tokens", "max_completion_tokens"'),
        ({"tries": "many"}, "tries must be a whole number, not text"),
        ({"clocks": {"idle": 0}}, "clocks.idle must be a number > 0.0"),
        ({"clocks": {"idle": -1.0}}, "clocks.idle must be a number > 0.0"),
    ],
)
async def test_a_wrong_option_names_provider_and_field(table: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as raised:
        await open_provider("openai", "small", table)
    assert raised.value.message == f'provider "openai": {message}'


async def test_a_missing_key_is_an_error_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ProviderAuth, match="NO_SUCH_KEY"):
        await open_provider("openai", "small", {"key_variable": "NO_SUCH_KEY"})


async def test_a_missing_sdk_gets_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_an_sdk.py").write_text("import an_sdk_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = "[tokengrid.providers]\nexotic = needs_an_sdk:Exotic [its-sdk]\n"
    install_package(tmp_path / "site", monkeypatch, "tokengrid-zoo", points)
    with pytest.raises(Unavailable, match=r'run: pip install "tokengrid-zoo\[its-sdk\]"'):
        await open_provider("exotic", "small", {})


async def test_a_provider_of_ours_that_is_not_installed_gets_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in OTHER_HOUSES:
        assert name in PROVIDERS, "this environment has all"
    monkeypatch.setitem(OTHER_HOUSES, "next-door", "tokengrid-next-door")
    with pytest.raises(Unavailable, match='run: pip install "tokengrid-next-door"'):
        await open_provider("next-door", "small", {})
    with pytest.raises(NotFound, match=r"known are .*mistral, next-door, "):
        await open_provider("next", "small", {})


async def test_a_name_that_two_packages_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("zoo", "farm"):
        points = "[tokengrid.providers]\nopenai = their_provider:Theirs\ntwice = their_provider:Theirs\n"
        install_package(tmp_path / package, monkeypatch, package, points)
    with pytest.raises(NotFound, match='several packages have a provider "twice": farm, zoo; uninstall all but one'):
        await open_provider("twice", "small", {})
    with pytest.raises(NotFound, match='several packages have a provider "openai": farm, tokengrid-flow, zoo'):
        load_provider("openai")


THEIR_SDK = """
from tg_base.llm import RemoteOptions, SdkProvider, SdkWire

class Bare(SdkProvider):
    wire = SdkWire(client="their_client")

    def body(self, request): ...
    def decoder(self, request): ...

class TheirOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    key_variables: tuple[str, ...] = ("THEIR_KEY",)

class Named(Bare, SdkProvider[TheirOptions]):
    pass
"""


@pytest.mark.parametrize(("name", "table"), [("Named", {}), ("Bare", {"key_variables": ["THEIR_KEY"]})])
async def test_the_key_of_an_sdk_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, table: dict[str, Any]
) -> None:
    """Whether its author named options, or none."""
    (tmp_path / "their_sdk.py").write_text(THEIR_SDK)
    (tmp_path / "their_client.py").write_text("asked = []\nconnect = asked.append\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("their_sdk", "their_client"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    place, url = f"their_sdk:{name}", "http://127.0.0.1:9"
    with pytest.raises(ProviderAuth, match="THEIR_KEY is not set"):
        await open_provider(place, "small", {"base_url": url, **table})
    monkeypatch.setenv("THEIR_KEY", "the-key")
    await open_provider(place, "small", {"base_url": url, **table})
    (endpoint,) = import_module("their_client").asked
    assert (endpoint.base_url, endpoint.model, endpoint.key) == (url, "small", "the-key")


async def test_a_class_of_somebody_else_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_provider.py").write_text(
        """
from tg_base.llm import LlmChunk
from tg_base.llm import LlmService

class Theirs(LlmService):
    async def generate_content(self, request):
        return LlmChunk(text=request.prompt or "", finish_reason="stop")

class Other:
    Inner = Theirs
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    provider = await open_provider("their_provider:Theirs", "small", {"tries": 2, "without": ["seed"]})
    assert (type(provider).__name__, provider.tries) == ("Theirs", 2)
    assert type(await open_provider("their_provider:Other.Inner", "small", {})) is type(provider)
    with pytest.raises(BadRequest, match="not a subclass of tg_base"):
        await open_provider("their_provider:Other", "small", {})
    with pytest.raises(BadRequest, match="not a subclass of tg_base"):
        await open_provider("their_provider:Missing.Inner", "small", {})
    with pytest.raises(Unavailable, match='install the distribution that has the module "nobody_has_this"'):
        await open_provider("nobody_has_this:Theirs", "small", {})


@pytest.mark.parametrize("name", ["a:", ":B", "a b:C", "../a:B", "a:B.", "a:B()"])
async def test_what_is_no_place_of_a_class_is_no_provider(name: str) -> None:
    with pytest.raises(NotFound):
        await open_provider(name, "small", {})


async def test_what_a_preset_takes_away_is_not_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_presets.py").write_text(
        """
from tg_base.llm import Preset
from tg_flow.providers.openai import OpenAi

ALMOST = Preset(OpenAi, {"base_url": "http://127.0.0.1:9/v1", "key_variable": "", "without": ["seed"]})
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    install_package(tmp_path, monkeypatch, "theirs", "[tokengrid.providers]\nalmost = their_presets:ALMOST\n")
    almost = await open_provider("almost", "small", {})
    whole = await open_provider("almost", "small", {"without": []})
    try:
        assert whole.features - almost.features == {"seed"}
    finally:
        await almost.aclose()
        await whole.aclose()


def test_every_name_leads_to_a_provider() -> None:
    for name in PROVIDERS:
        assert issubclass(load_provider(name).kind, LlmService)


SDKS = {
    *("aiohttp", "anthropic", "boto3", "botocore", "cohere", "google.auth", "google.genai", "grpc"),
    *("httpx", "httpx2", "huggingface_hub", "mistralai", "ollama", "openai", "pydantic", "requests"),
}


def test_importing_the_providers_imports_no_sdk() -> None:
    places = sorted(set(PLACES.values()))
    code = f"import sys, {', '.join(places)}; print(*sorted(set(sys.modules) & {SDKS!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


class OwnOptions(ProviderOptions, frozen=True, kw_only=True):
    heat: int = 3


class Own(LlmService[OwnOptions]):
    @override
    async def generate_content(self, request: TextCompletionRequest) -> LlmChunk:
        return LlmChunk(str(self.options.heat), finish_reason="stop")


AnyOptions = TypeVar("AnyOptions", bound=ProviderOptions, default=ProviderOptions)


class Family(LlmService[AnyOptions], Generic[AnyOptions]):
    """Has no options of its own: they are its members'."""


class Member(Family[OwnOptions]):
    """One of a family."""


class Heir(Own):
    """Has the options of its parent."""


def test_a_providers_options_are_the_argument_of_its_class() -> None:
    assert [kind.Options for kind in (Own, Member, Heir)] == [OwnOptions] * 3
    assert Family.Options is LlmService.Options is ProviderOptions


def test_a_provider_without_options_has_the_defaults_of_its_own() -> None:
    assert Own("m").options.heat == 3
    assert Own("m", OwnOptions(heat=4)).options.heat == 4
