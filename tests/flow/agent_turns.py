"""Turns of a scripted model in ReAct text, and what an agent with some tools makes of them."""

import json
from pathlib import Path

import pytest

from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, Pipeline, pipeline
from tests.flow.serve_context import context_of
from tg_base.bus.memory import MemoryBus
from tg_base.config import ConfigWatcher
from tg_flow.agent import AgentKind
from tg_schema import TgError

DONE = ("Final Answer: done",)


def call(tool: str, **arguments: object) -> tuple[str, ...]:
    """A turn that calls a tool."""
    return (f"Thought: so\nAction: {tool}\nAction Input: {json.dumps(arguments)}\n",)


async def observed_in(it: Pipeline) -> list[str]:
    """What a dialog observes that is done in the end."""
    told = await it.tell()
    assert told.answer == "done"
    return [content for kind, content in told.messages if kind == "observation"]


async def observed(folder: Path, config: str, *turns: tuple[str, ...]) -> list[str]:
    """What a dialog with these turns observes."""
    async with pipeline(TurnsLlm(*turns, DONE), folder, BASE + config) as it:
        return await observed_in(it)


async def refusal(folder: Path, config: str) -> TgError:
    """Why an agent with this configuration cannot be served."""
    file = folder / "tg.toml"
    file.write_text(BASE + config)
    bus = MemoryBus()
    with pytest.raises(TgError) as error:
        await AgentKind().serve(context_of(ConfigWatcher(file), bus)).__aenter__()
    await bus.aclose()
    return error.value
