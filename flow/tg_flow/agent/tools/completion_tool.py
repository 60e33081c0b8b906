"""Agent -> text completion: a model as a tool."""

from collections.abc import AsyncGenerator
from typing import Any, Self

from typing_extensions import override

from tg_base.client import Client
from tg_base.config import ToolConfig
from tg_flow.agent.core import AgentTool, Piece, ToolContext, ToolOptions, cut_note, declare
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, Tool, Usage, encode

PROMPT_SCHEMA = {
    "type": "object",
    "properties": {"prompt": {"type": "string"}},
    "required": ["prompt"],
    "additionalProperties": False,
}


class CompletionOptions(ToolOptions, frozen=True):
    """`system`: the system text for the model. `flow`: the flow of the model; default: the agent's own."""

    system: str = ""
    flow: str | None = None


class CompletionTool(AgentTool):
    """The answer streams as the observation. The argument is `prompt`; the model gets any others as JSON."""

    Options = CompletionOptions

    def __init__(
        self,
        declaration: Tool,
        table: ToolConfig,
        client: Client[TextCompletionRequest, TextCompletionResponse],
        system: str,
    ) -> None:
        super().__init__(declaration, table)
        self._client = client
        self._system = system

    @classmethod
    @override
    async def open(
        cls, name: str, table: ToolConfig, options: CompletionOptions, context: ToolContext
    ) -> tuple[Self, ...]:
        client = context.client(TEXT_COMPLETION.name, options.flow)
        return (cls(declare(name, table, "Asks a language model.", PROMPT_SCHEMA), table, client, options.system),)

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        prompt = arguments.get("prompt")
        text = prompt if isinstance(prompt, str) and len(arguments) == 1 else encode(arguments).decode()
        request = TextCompletionRequest(self._system, text, streaming=True)
        async with self._client.stream(request, timeout=self.table.timeout) as answers:
            async for answer in answers:
                if answer.last:
                    yield Usage(answer.in_token, answer.out_token)
                yield (answer.response or "") + cut_note(answer.finish_reason)
