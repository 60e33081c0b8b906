"""Dialog -> answer: ReAct with other agents among the tools; their records have their path."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from tg_flow.agent.core import AgentLoop, Dialog, Goal
from tg_schema import AgentResponse

INSTRUCTIONS = (
    "You lead other agents, who are among your tools. Give each of them a question that it can answer without knowing "
    "this conversation; ask several at once where they do not need each other's answers."
)


async def supervisor(dialog: Dialog) -> AsyncGenerator[AgentResponse, None]:
    """One loop over the team."""
    goal = Goal(dialog.goal.question, "\n\n".join(text for text in (dialog.goal.instructions, INSTRUCTIONS) if text))
    async with aclosing(AgentLoop(dialog, goal, dialog.earlier).records()) as records:
        async for record in records:
            yield record
    yield dialog.finish()
