"""The services that a flow may bind: one row each, in the order in which the gateway lists them."""

from tg_base.config.agent_config import AgentConfig
from tg_base.config.model import ServiceConfig
from tg_base.config.prompt_config import PromptConfig
from tg_base.config.text_completion_config import TextCompletionConfig

SERVICES: tuple[type[ServiceConfig], ...] = (TextCompletionConfig, PromptConfig, AgentConfig)
