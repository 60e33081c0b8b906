"""Agent -> tools: one file for each kind of tool, imported when a configuration table names the kind."""

from tg_flow.agent.tools.kinds import open_tools
from tg_flow.agent.tools.sub_agent import SubAgent

__all__ = [
    "SubAgent",
    "open_tools",
]
