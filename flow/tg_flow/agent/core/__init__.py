"""Pattern -> loop -> model and tools: one dialog, whatever the pattern and the kinds of tools."""

from tg_flow.agent.core.answer_text import AnswerText
from tg_flow.agent.core.calling import Goal
from tg_flow.agent.core.dialog import Dialog, said
from tg_flow.agent.core.loop import AgentLoop
from tg_flow.agent.core.model import AgentModel
from tg_flow.agent.core.prompts import AgentPrompts
from tg_flow.agent.core.tool import AgentTool, Piece, TokenUsage, ToolContext, ToolOptions, cut_note, declared
from tg_flow.agent.core.toolbox import Toolbox, compiled

__all__ = [
    "AgentLoop",
    "AgentModel",
    "AgentPrompts",
    "AgentTool",
    "AnswerText",
    "Dialog",
    "Goal",
    "Piece",
    "TokenUsage",
    "ToolContext",
    "ToolOptions",
    "Toolbox",
    "compiled",
    "cut_note",
    "declared",
    "said",
]
