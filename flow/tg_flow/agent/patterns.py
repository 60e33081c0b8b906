"""Dialog -> answer: the patterns of reasoning, which all use the same loop."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from tg_flow.agent.core import AgentLoop, Dialog, Goal, PlanReader
from tg_schema import AgentResponse
from tg_schema.errors import ProtocolError

MAX_STEPS = 8
INSTRUCTIONS = (
    "You lead other agents, who are among your tools. Give each of them a question that it can answer without knowing "
    "this conversation; ask several at once where they do not need each other's answers."
)
_STEP = re.compile(r"^[ \t]*(?:\d+[.):]|[-*])[ \t]+(\S.*)", re.MULTILINE)


async def react(dialog: Dialog, goal: Goal | None = None) -> AsyncGenerator[AgentResponse, None]:
    """Think, act, observe: one loop, which ends with the answer. Without a `goal`, it answers the dialog's."""
    async with aclosing(AgentLoop(dialog, goal or dialog.goal, dialog.earlier).records()) as records:
        async for record in records:
            yield record
    yield dialog.finish()


def supervisor(dialog: Dialog) -> AsyncGenerator[AgentResponse, None]:
    """ReAct with other agents among the tools. Their records carry the agents' path."""
    instructions = "\n\n".join(text for text in (dialog.goal.instructions, INSTRUCTIONS) if text)
    return react(dialog, Goal(dialog.goal.question, instructions))


async def plan_then_execute(dialog: Dialog) -> AsyncGenerator[AgentResponse, None]:
    """Plan, then execute each step. The plan and the results are thoughts; the conclusion is the answer."""
    prompts, goal = dialog.model.prompts, dialog.goal
    tools = [
        {"name": tool.declaration.name, "description": tool.declaration.description} for tool in dialog.tools.values()
    ]
    rendered = await prompts.render(
        "agent-plan", question=goal.question, instructions=goal.instructions, tools=tools, most=MAX_STEPS
    )
    planning = AgentLoop(dialog, goal, (), speaks="thought")
    async with aclosing(planning.say(rendered, PlanReader)) as records:
        async for record in records:
            yield record
    for record in dialog.messages.close():
        yield record
    done: list[dict[str, str]] = []
    # If the plan has no list, use the question as the only step.
    for step in steps_of(planning.answer) or [goal.question]:
        question = await prompts.render("agent-step", step=step, question=goal.question, done=done)
        # Only the first step gets the history; each later step gets the results of the steps before it.
        earlier = () if done else dialog.earlier
        loop = AgentLoop(dialog, Goal(question.prompt, goal.instructions), earlier, speaks="thought")
        async with aclosing(loop.records()) as records:
            async for record in records:
                yield record
        for record in dialog.messages.close():
            yield record
        done.append({"step": step, "result": loop.answer})
    rendered = await prompts.render(
        "agent-synthesis", question=goal.question, instructions=goal.instructions, done=done
    )
    concluding = AgentLoop(dialog, goal, ())
    async with aclosing(concluding.say(rendered)) as records:
        async for record in records:
            yield record
    if not concluding.answer.strip():
        raise ProtocolError("the model has given no answer; ask again")
    if not dialog.messages.answering:
        for record in dialog.messages.add_text("answer", concluding.answer):
            yield record
    yield dialog.finish()


def steps_of(plan: str) -> list[str]:
    """The steps of a list, in the forms in which models write lists."""
    return [step.group(1).rstrip() for step in _STEP.finditer(plan)][:MAX_STEPS]
