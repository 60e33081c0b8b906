"""Agent -> prompt service: a template as a tool; the arguments are its variables."""

from collections.abc import AsyncGenerator
from typing import Any, Self

from typing_extensions import override

from tg_base.client import Client, prompt_request
from tg_base.config import ToolConfig
from tg_flow.agent.core import AgentTool, Piece, ToolContext, ToolOptions, cut_note, declare
from tg_schema import PROMPT, PromptRequest, PromptResponse, Tool, Usage

ANY_OBJECT_SCHEMA = {"type": "object"}


class PromptOptions(ToolOptions, frozen=True):
    """`template`: its id; default: the tool's name. `flow`: the flow of the prompts; default: the agent's own."""

    template: str | None = None
    flow: str | None = None


class PromptTool(AgentTool):
    """The answer streams as the observation."""

    Options = PromptOptions

    def __init__(
        self, declaration: Tool, table: ToolConfig, client: Client[PromptRequest, PromptResponse], template: str
    ) -> None:
        super().__init__(declaration, table)
        self._client = client
        self._template = template

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: PromptOptions, context: ToolContext) -> tuple[Self, ...]:
        client = context.client(PROMPT.name, options.flow)
        return (cls(declare(name, table, "", ANY_OBJECT_SCHEMA), table, client, options.template or name),)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        request = prompt_request(self._template, arguments, streaming=True)
        async with self._client.stream(request, timeout=self.table.timeout) as answers:
            async for answer in answers:
                if answer.last:
                    yield Usage(answer.in_token, answer.out_token)
                yield (answer.text or answer.object or "") + cut_note(answer.finish_reason)
