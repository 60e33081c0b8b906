"""AgentRequest -> AgentResponses: the agent service, and what it is made of. The rest is inside."""

from tg_flow.agent.agent_kind import AgentKind
from tg_flow.agent.core import AgentModel, AgentPrompts, ToolContext
from tg_flow.agent.service import AgentService

__all__ = [
    "AgentKind",
    "AgentModel",
    "AgentPrompts",
    "AgentService",
    "ToolContext",
]
