"""Supervisor -> agent service of another flow: an agent that the supervisor calls as a tool."""

from collections.abc import AsyncGenerator
from typing import Any, Self

import msgspec
from typing_extensions import override

from tg_base.client import Client
from tg_base.config import ToolConfig
from tg_flow.agent.core import AgentTool, AnswerText, Piece, ToolContext, ToolOptions, cut_note
from tg_schema import AgentRequest, AgentResponse, Tool, Usage
from tg_schema.agent import DEFAULT_GROUP
from tg_schema.errors import BadRequest

QUESTION_SCHEMA = {
    "type": "object",
    "properties": {"question": {"type": "string", "description": "what to find out"}},
    "required": ["question"],
    "additionalProperties": False,
}


class SubAgent(AgentTool):
    """An agent as a tool. Its records go to the requestor, its name added to their path. Its answer is the observation.

    Args:
        name: the agent's flow.
        description: what the agent is good at.
        client: the client of the agent's service.
        parent: the request that the supervisor answers; the sub-agent gets the same groups.
        seconds: the time limit of a call.
    """

    def __init__(
        self,
        name: str,
        description: str,
        client: Client[AgentRequest, AgentResponse],
        parent: AgentRequest,
        seconds: float,
    ) -> None:
        table = ToolConfig(kind="service", timeout=seconds, group=tuple(parent.group or ()) or (DEFAULT_GROUP,))
        super().__init__(Tool(name, description or f"the agent {name}", QUESTION_SCHEMA), table)
        self._client = client
        self._parent = parent
        self._seconds = seconds

    @classmethod
    @override
    async def open(cls, name: str, table: ToolConfig, options: ToolOptions, context: ToolContext) -> tuple[Self, ...]:
        raise BadRequest("an agent is no tool of the configuration; name its flow in agents")

    @override
    async def call(self, arguments: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        parent = self._parent
        request = AgentRequest(str(arguments["question"]), group=parent.group, user=parent.user, streaming=True)
        answer = AnswerText()
        async with self._client.stream(request, timeout=self._seconds) as records:
            async for record in records:
                answer.take(record)
                path = (self.declaration.name, *record.path)
                # The end of the sub-agent's dialog does not end this one. Its usage is counted once, below.
                yield msgspec.structs.replace(
                    record,
                    path=path,
                    end_of_dialog=False,
                    in_token=None,
                    out_token=None,
                    model=None,
                    finish_reason=None,
                )
                if record.last:
                    yield Usage(record.in_token, record.out_token)
                    yield answer.final_text(record) + cut_note(record.finish_reason)
