"""Pattern -> loop -> model and tools: one dialog. It does not depend on the patterns or the kinds of tools."""

from tg_flow.agent.core.answer_text import AnswerText
from tg_flow.agent.core.calling import Goal
from tg_flow.agent.core.dialog import Dialog
from tg_flow.agent.core.loop import AgentLoop
from tg_flow.agent.core.model import AgentModel
from tg_flow.agent.core.plan_reader import PlanReader
from tg_flow.agent.core.prompts import AgentPrompts
from tg_flow.agent.core.tool import AgentTool, Piece, ToolContext, ToolOptions, cut_note, declare, read_secrets
from tg_flow.agent.core.toolbox import Toolbox, compile_schema

__all__ = [
    "AgentLoop",
    "AgentModel",
    "AgentPrompts",
    "AgentTool",
    "AnswerText",
    "Dialog",
    "Goal",
    "Piece",
    "PlanReader",
    "ToolContext",
    "ToolOptions",
    "Toolbox",
    "compile_schema",
    "cut_note",
    "declare",
    "read_secrets",
]
