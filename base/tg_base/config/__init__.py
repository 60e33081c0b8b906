"""Configuration file -> frozen values: reading, validation, edits while a process runs, and command-line overrides."""

# Keep several names on one line, so that the exports can be read at a glance.
# fmt: off
# isort: off
from tg_base.config.findings import Findings, FirstFinding
from tg_base.config.model import (
    ApiKey, BusConfig, Config, GatewayConfig, PriceConfig, ServiceConfig, ToolConfig, SERVICE_KINDS, TOOL_KINDS,
)
from tg_base.config.overrides import CliOverrides
from tg_base.config.reader import inspect_config, read_config, read_services, read_table
from tg_base.config.route_config import RouteConfig
from tg_base.config.rules import sound_part
from tg_base.config.services import (
    AGENT_PATTERNS, SERVICES, AgentConfig, AgentLimits, PromptConfig, TextCompletionConfig,
)
from tg_base.config.table_reader import TableReader, advise, read_options
from tg_base.config.toml_positions import Keys
from tg_base.config.toml_text import read_text
from tg_base.config.watcher import ConfigWatcher, Prepare

__all__ = [
    "AGENT_PATTERNS", "SERVICES", "SERVICE_KINDS", "TOOL_KINDS", "AgentConfig", "AgentLimits", "ApiKey", "BusConfig",
    "CliOverrides", "Config", "ConfigWatcher", "Findings", "FirstFinding", "GatewayConfig", "Keys",
    "Prepare", "PriceConfig", "PromptConfig", "RouteConfig", "ServiceConfig", "TableReader", "TextCompletionConfig",
    "ToolConfig",
    "advise", "inspect_config", "read_config", "read_options", "read_services", "read_table", "read_text", "sound_part",
]  # fmt: skip
