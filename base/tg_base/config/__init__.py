"""Configuration file -> frozen values: reading, checking, following edits, and what options override."""

from tg_base.config.findings import Findings, FirstFinding
from tg_base.config.model import SPECS, AgentLimits, ApiKey, Config, GatewayConfig, ServiceConfig, ToolConfig
from tg_base.config.option_reader import read_options
from tg_base.config.overrides import FLOW, Overrides
from tg_base.config.reader import inspect_config, read_config
from tg_base.config.rules import sound_part
from tg_base.config.watcher import ConfigFile

__all__ = [
    "FLOW",
    "SPECS",
    "AgentLimits",
    "ApiKey",
    "Config",
    "ConfigFile",
    "Findings",
    "FirstFinding",
    "GatewayConfig",
    "Overrides",
    "ServiceConfig",
    "ToolConfig",
    "inspect_config",
    "read_config",
    "read_options",
    "sound_part",
]
