"""Dialog -> answer: think, act, observe, until the answer is known."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from tg_flow.agent.core import AgentLoop, Dialog, Goal
from tg_schema import AgentResponse


async def react(dialog: Dialog, goal: Goal | None = None) -> AsyncGenerator[AgentResponse, None]:
    """One loop, which ends with the answer; without a goal of its own for the dialog's."""
    async with aclosing(AgentLoop(dialog, goal or dialog.goal, dialog.earlier).records()) as records:
        async for record in records:
            yield record
    yield dialog.finish()
