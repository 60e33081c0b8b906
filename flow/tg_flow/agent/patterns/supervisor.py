"""Dialog -> answer: ReAct with other agents among the tools; their records have their path."""

from collections.abc import AsyncGenerator

from tg_flow.agent.core import Dialog, Goal
from tg_flow.agent.patterns.react import react
from tg_schema import AgentResponse

INSTRUCTIONS = (
    "You lead other agents, who are among your tools. Give each of them a question that it can answer without knowing "
    "this conversation; ask several at once where they do not need each other's answers."
)


def supervisor(dialog: Dialog) -> AsyncGenerator[AgentResponse, None]:
    """One loop over the team."""
    instructions = "\n\n".join(text for text in (dialog.goal.instructions, INSTRUCTIONS) if text)
    return react(dialog, Goal(dialog.goal.question, instructions))
