"""The kinds of tools that an agent can call, one file each; a file is imported when a table names its kind."""

from tg_flow.agent.tools.kinds import open_tools
from tg_flow.agent.tools.sub_agent import SubAgent

__all__ = [
    "SubAgent",
    "open_tools",
]
