"""AgentRequest -> pattern -> AgentResponses: thoughts, actions, observations and the answer, each as it happens."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
from typing_extensions import override

from tg_base.client import Client
from tg_base.config import AgentConfig
from tg_base.runtime import WorkerPool
from tg_base.server import Service
from tg_flow.agent.core import AgentModel, AgentTool, AnswerText, Dialog, Goal, Toolbox
from tg_flow.agent.patterns import plan_then_execute, react, supervisor
from tg_flow.agent.tools import SubAgent
from tg_schema import AGENT, AgentRequest, AgentResponse
from tg_schema.agent import Pattern
from tg_schema.errors import BadRequest

Reasoning = Callable[[Dialog], AsyncGenerator[AgentResponse, None]]
"""What a pattern does: yields a dialog's records, the last of which ends it."""

PATTERNS: dict[Pattern, Reasoning] = {"react": react, "plan-then-execute": plan_then_execute, "supervisor": supervisor}


@dataclass(frozen=True, slots=True)
class Member:
    """An agent that a supervisor may ask.

    Attributes:
        description: what it is good at.
        client: the client of its service.
    """

    description: str
    client: Client[AgentRequest, AgentResponse]


class AgentService(Service[AgentRequest, AgentResponse]):
    """The agent of one flow. It keeps no state between requests.

    Args:
        profile: the flow's configuration of its agent.
        model: its model.
        tools: its tools; their opener closes them.
        team: for each flow, the agent that a supervisor may ask.
    """

    spec = AGENT

    def __init__(
        self, profile: AgentConfig, model: AgentModel, tools: tuple[AgentTool, ...], team: Mapping[str, Member]
    ) -> None:
        self.model = model
        self._profile = profile
        self._tools = tools
        self._checkers = WorkerPool()
        self._toolbox = Toolbox(tools, self._checkers)
        self._team = team

    @override
    async def on_request(self, request: AgentRequest) -> AsyncGenerator[AgentResponse, None]:
        pattern = self._pattern(request)
        goal = Goal(_question(request), self._profile.instructions)
        toolbox = self._with_team(request) if pattern is supervisor else self._toolbox
        calling = await self.model.calling()
        limits = self._profile.limits
        dialog = Dialog(request, goal=goal, model=self.model, calling=calling, toolbox=toolbox, limits=limits)
        async with aclosing(pattern(dialog)) as records:
            if not request.streaming:
                yield await join_answer(records)
                return
            async for record in records:
                yield record

    @override
    async def aclose(self) -> None:
        await self._checkers.aclose()

    def _pattern(self, request: AgentRequest) -> Reasoning:
        name = request.pattern or self._profile.pattern
        pattern = next((reason for known, reason in PATTERNS.items() if known == name), None)
        if pattern is None:
            raise BadRequest(f'there is no pattern "{name[:100]}"; known are {", ".join(PATTERNS)}')
        if pattern is supervisor and not self._team:
            raise BadRequest("this flow's agent has no other agents to ask; leave the pattern out, or ask another flow")
        return pattern

    def _with_team(self, request: AgentRequest) -> Toolbox:
        seconds = self._profile.limits.seconds
        team = [SubAgent(flow, one.description, one.client, request, seconds) for flow, one in self._team.items()]
        # For each request: a sub-agent is asked with its groups and its user.
        return Toolbox((*self._tools, *team), self._checkers)


def _question(request: AgentRequest) -> str:
    if not (request.question or "").strip():
        raise BadRequest("question is missing: send a JSON object with `question` (text)")
    return request.question or ""


async def join_answer(records: AsyncGenerator[AgentResponse, None]) -> AgentResponse:
    """The answer as one record: the text of the message that ends the dialog."""
    answer = AnswerText()
    async for record in records:
        answer.take(record)
        if record.last:
            return msgspec.structs.replace(record, content=answer.final_text(record))
    raise RuntimeError("a pattern ended without a last record")
