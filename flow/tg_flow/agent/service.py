"""AgentRequest -> pattern -> AgentResponses: thoughts, actions, observations and the answer, each as it arises."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
import structlog
from typing_extensions import override

from tg_base.client import Client
from tg_base.config import AGENT_PATTERNS, AgentConfig
from tg_base.runtime import WorkerPool, explaining_absence, find_entry_point, find_entry_points, translate_defects
from tg_base.server import Service
from tg_flow.agent.core import AgentModel, AgentTool, AnswerText, Dialog, Goal, Toolbox
from tg_flow.agent.patterns import supervisor
from tg_flow.agent.tools import SubAgent
from tg_schema import AGENT, AgentRequest, AgentResponse
from tg_schema.errors import BadRequest, Unavailable

log = structlog.get_logger()

Reasoning = Callable[[Dialog], AsyncGenerator[AgentResponse, None]]
"""A pattern: yields the records of a dialog; the last record ends it."""


@dataclass(frozen=True, slots=True)
class Member:
    """An agent that a supervisor may ask.

    Attributes:
        description: what the agent is good at.
        client: the client of its service.
    """

    description: str
    client: Client[AgentRequest, AgentResponse]


class AgentService(Service[AgentRequest, AgentResponse]):
    """The agent of one flow. It keeps no state between requests.

    Args:
        profile: the flow's configuration of its agent.
        model: the agent's model.
        tools: the agent's tools. The caller opens and closes them.
        team: the agents that a supervisor may ask, by flow.
        patterns: all patterns that a request may name.
    """

    spec = AGENT

    def __init__(
        self,
        profile: AgentConfig,
        model: AgentModel,
        tools: tuple[AgentTool, ...],
        team: Mapping[str, Member],
        patterns: Mapping[str, Reasoning],
    ) -> None:
        self.model = model
        self._profile = profile
        self._tools = tools
        self._checkers = WorkerPool()
        self._toolbox = Toolbox(tools, self._checkers)
        self._team = team
        self._patterns = patterns

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
        pattern = self._patterns.get(name)
        if pattern is None:
            raise BadRequest(f'there is no pattern "{name[:100]}"; known are {", ".join(sorted(self._patterns))}')
        if pattern is supervisor and not self._team:
            raise BadRequest("this flow's agent has no other agents to ask; leave the pattern out, or ask another flow")
        return pattern

    def _with_team(self, request: AgentRequest) -> Toolbox:
        seconds = self._profile.limits.seconds
        team = [SubAgent(flow, one.description, one.client, request, seconds) for flow, one in self._team.items()]
        # Create them for each request, because a sub-agent gets the request's groups and user.
        return Toolbox((*self._tools, *team), self._checkers)


def _question(request: AgentRequest) -> str:
    if not (request.question or "").strip():
        raise BadRequest("question is missing: send a JSON object with `question` (text)")
    return request.question or ""


def load_patterns(profile: AgentConfig) -> dict[str, Reasoning]:
    """The patterns that installed packages offer, and the profile's own; imports them all.

    Raises:
        TgError: one of them cannot be imported.
    """
    patterns: dict[str, Reasoning] = {}
    for name in {*find_entry_points(AGENT_PATTERNS).names, profile.pattern}:
        point = find_entry_point(AGENT_PATTERNS, name, "pattern", "module:function")
        owner = f'the pattern "{name}"'
        broken = translate_defects(Unavailable, f"{owner} cannot be loaded: mend or uninstall it", "agent.pattern", log)
        with broken, explaining_absence(owner, point):
            patterns[name] = point.load()
    return patterns


async def join_answer(records: AsyncGenerator[AgentResponse, None]) -> AgentResponse:
    """The answer as one record: the text of the message that ends the dialog."""
    answer = AnswerText()
    async for record in records:
        answer.take(record)
        if record.last:
            return msgspec.structs.replace(record, content=answer.final_text(record))
    raise RuntimeError("a pattern ended without a last record")
