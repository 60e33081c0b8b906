"""Configuration file -> frozen values: reading, validation, edits while a process runs, and command-line overrides."""

from tg_base.config.agent_config import AgentConfig, AgentLimits
from tg_base.config.findings import Findings, FirstFinding
from tg_base.config.model import ApiKey, Config, GatewayConfig, LmiConfig, ServiceConfig, ToolConfig, ToolKindName
from tg_base.config.option_reader import read_options
from tg_base.config.overrides import OVERRIDDEN_FLOW, CliOverrides
from tg_base.config.prompt_config import PromptConfig
from tg_base.config.reader import inspect_config, read_config
from tg_base.config.rules import sound_part
from tg_base.config.services import SERVICES
from tg_base.config.text_completion_config import TextCompletionConfig
from tg_base.config.watcher import ConfigWatcher, Prepare

__all__ = [
    "OVERRIDDEN_FLOW",
    "SERVICES",
    "AgentConfig",
    "AgentLimits",
    "ApiKey",
    "CliOverrides",
    "Config",
    "ConfigWatcher",
    "Findings",
    "FirstFinding",
    "GatewayConfig",
    "LmiConfig",
    "Prepare",
    "PromptConfig",
    "ServiceConfig",
    "TextCompletionConfig",
    "ToolConfig",
    "ToolKindName",
    "inspect_config",
    "read_config",
    "read_options",
    "sound_part",
]
