"""AgentRequest -> AgentResponses: the agent service, its parts, and what authors of tools and patterns need."""

from tg_flow.agent.agent_kind import AgentKind
from tg_flow.agent.core import (
    AgentLoop,
    AgentModel,
    AgentPrompts,
    AgentTool,
    Dialog,
    Goal,
    Piece,
    ToolContext,
    ToolOptions,
    declare,
)
from tg_flow.agent.service import AgentService

__all__ = [
    "AgentKind",
    "AgentLoop",
    "AgentModel",
    "AgentPrompts",
    "AgentService",
    "AgentTool",
    "Dialog",
    "Goal",
    "Piece",
    "ToolContext",
    "ToolOptions",
    "declare",
]
