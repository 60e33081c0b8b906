"""The services that a flow may bind: one row each, in the order in which the gateway lists them."""

from collections.abc import Iterator

from typing_extensions import override

from tg_base.config.agent_config import AgentConfig
from tg_base.config.model import Config, ServiceConfig
from tg_base.config.text_completion_config import TextCompletionConfig
from tg_schema import PROMPT, TEXT_COMPLETION
from tg_schema.errors import BadRequest


class PromptConfig(ServiceConfig, frozen=True):
    """The prompt service of a flow."""

    spec = PROMPT

    @override
    def faults(self, config: Config, flow: str) -> Iterator[BadRequest]:
        if not (self.plain or TEXT_COMPLETION.name in config.flows[flow] or config.completes(flow)):
            sentence = f'flow "{flow}" has prompts but no {TEXT_COMPLETION.name} to answer them; add it'
            yield config.fault(sentence, "flows", flow, PROMPT.name)


SERVICES: tuple[type[ServiceConfig], ...] = (TextCompletionConfig, PromptConfig, AgentConfig)
