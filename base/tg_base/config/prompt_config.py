"""[flows.NAME.prompt] -> a flow's prompt service; all flows share the templates of `[prompts]`."""

from collections.abc import Iterator

from typing_extensions import override

from tg_base.config.model import Config, ServiceConfig
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
