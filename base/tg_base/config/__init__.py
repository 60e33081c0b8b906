"""Configuration file -> frozen values: reading, checking, following edits, and what options override."""

from tg_base.config.findings import Findings, FirstFinding
from tg_base.config.model import SPECS, AgentLimits, ApiKey, Config, GatewayConfig, ServiceConfig, ToolConfig
from tg_base.config.option_reader import read_options
from tg_base.config.overrides import OVERRIDDEN_FLOW, CliOverrides
from tg_base.config.reader import inspect_config, read_config
from tg_base.config.rules import sound_part
from tg_base.config.watcher import ConfigWatcher

__all__ = [
    "OVERRIDDEN_FLOW",
    "SPECS",
    "AgentLimits",
    "ApiKey",
    "CliOverrides",
    "Config",
    "ConfigWatcher",
    "Findings",
    "FirstFinding",
    "GatewayConfig",
    "ServiceConfig",
    "ToolConfig",
    "inspect_config",
    "read_config",
    "read_options",
    "sound_part",
]
