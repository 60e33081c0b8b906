"""Configuration tables that become providers, or one clear error."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tg_base.llm_service import LlmService
from tg_base.stream_guard import Clocks
from tg_flow.providers.openai_compatible import OpenAiCompatible
from tg_flow.providers.registry import PROVIDERS, Row, open_provider
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
    with pytest.raises(NotFound, match='no provider "opnai"; known are llama-cpp, openai'):
        await open_provider("opnai", "small", {})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"base_ulr": "x"}, "base_ulr"),
        ({"base_url": 5}, r"`\$.base_url`"),
        ({"temperature": 3.0}, r"`\$.temperature`"),
        ({"max_tokens": 0}, r"`\$.max_tokens`"),
        ({"max_tokens_field": "length"}, r"`\$.max_tokens_field`"),
        ({"tries": "many"}, r"`\$.tries`"),
        ({"clocks": {"idle": 0}}, r"`\$.clocks.idle`"),
        ({"clocks": {"idle": -1.0}}, r"`\$.clocks.idle`"),
    ],
)
async def test_a_wrong_option_names_provider_and_field(table: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=f'provider "openai": .*{message}'):
        await open_provider("openai", "small", table)


async def test_a_missing_key_is_an_error_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ProviderAuth, match="NO_SUCH_KEY"):
        await open_provider("openai", "small", {"key_variable": "NO_SUCH_KEY"})


async def test_a_missing_sdk_gets_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_an_sdk.py").write_text("import an_sdk_that_nobody_has\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(PROVIDERS, "exotic", Row("needs_an_sdk", "Exotic", "exotic"))
    with pytest.raises(Unavailable, match=r'run: pip install "tg-flow\[exotic\]"'):
        await open_provider("exotic", "small", {})


async def test_every_row_leads_to_a_provider() -> None:
    for row in PROVIDERS.values():
        assert issubclass(getattr(import_module(row.module), row.name), LlmService)


@pytest.mark.parametrize("module", ["tg_flow.providers.registry", "tg_flow.providers.openai_compatible"])
def test_importing_a_provider_imports_no_sdk(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set(sys.modules) & {{'openai', 'httpx2', 'aiohttp', 'llama_cpp'}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
