"""docs/configuration.md: it names every field, and says which are followed."""

import re
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from tg_base.bus import BusOptions
from tg_base.config import (
    SERVICES,
    AgentLimits,
    ApiKey,
    Config,
    GatewayConfig,
    PriceConfig,
    RouteConfig,
    ToolConfig,
)
from tg_base.config.changes import is_followed
from tg_base.config.model import BusConfig, ModelConfig, PromptsConfig, TemplateConfig
from tg_base.llm import ProviderOptions
from tg_base.llm.guard import Clocks
from tg_doors import LmiConfig, LmiModelConfig
from tg_flow.agent.tools.http_tool import HttpOptions
from tg_flow.agent.tools.mcp_session import McpOptions
from tg_flow.agent.tools.python_tool import PythonOptions
from tg_flow.agent.tools.service_tool import CompletionOptions, PromptOptions, ServiceOptions
from tg_flow.usage import UsageConfig
from tg_llama.options import LlamaCppOptions

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text()
LMI_DOCUMENT = (ROOT / "doors" / "docs" / "lmi.md").read_text()


def followed_fields(table: type[msgspec.Struct], keys: tuple[str, ...] = ()) -> set[str]:
    """The keys of all that is `Followed`."""
    found = set()
    written = dict(zip(table.__struct_fields__, table.__struct_encode_fields__, strict=True))
    for field, kind in get_type_hints(table, include_extras=True).items():
        name = written.get(field, field)
        if is_followed(kind):
            found.add(".".join((*keys, name)))
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found |= followed_fields(kind, (*keys, name))
    return found


def test_the_documentation_lists_what_is_followed() -> None:
    listed = re.search(r"\| followed \| .*?\n\n", DOCUMENT, re.DOTALL)
    assert listed is not None
    services = [
        followed_fields(table, ("flows", "NAME", table.spec.name)) for table in SERVICES if table.spec is not None
    ]
    followed = followed_fields(Config).union(*services)
    assert set(re.findall(r"^\| `([A-Za-z_.-]+)`", listed[0], re.MULTILINE)) == followed


TABLES = [
    BusConfig,
    BusOptions,
    GatewayConfig,
    ApiKey,
    ModelConfig,
    RouteConfig,
    *SERVICES,
    PromptsConfig,
    TemplateConfig,
    AgentLimits,
    ToolConfig,
    UsageConfig,
    PriceConfig,
]
TOOLS = [PythonOptions, HttpOptions, McpOptions, PromptOptions, CompletionOptions, ServiceOptions]


@pytest.mark.parametrize("table", [*TABLES, Clocks, ProviderOptions, LlamaCppOptions, *TOOLS])
def test_every_field_is_documented(table: type[msgspec.Struct]) -> None:
    assert_documented(table, DOCUMENT)


@pytest.mark.parametrize("table", [LmiConfig, LmiModelConfig])
def test_every_field_of_lmi_is_documented_at_its_door(table: type[msgspec.Struct]) -> None:
    assert_documented(table, LMI_DOCUMENT)


def assert_documented(table: type[msgspec.Struct], document: str) -> None:
    named = {name.rpartition(".")[2] for name in re.findall(r"`\[*([A-Za-z0-9_.]+)\]*", document)}
    nested = {"options", "templates", "clocks", "keys", "limits", "doors"}
    assert set(table.__struct_fields__) - nested <= named
