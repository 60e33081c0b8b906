"""Loop -> model without native tool calls: a ReAct text that holds the whole dialog in one prompt."""

import msgspec
from typing_extensions import override

from tg_flow.agent.core.calling import Calling, Goal, Reader
from tg_flow.agent.core.prompts import AgentPrompts
from tg_flow.agent.core.turn import Turn
from tg_flow.agent.parsing import Event, ReactParser, ReasoningDelta
from tg_schema import Sampling, TextCompletionRequest, TextCompletionResponse, Tool

STOP_STRINGS = ("\nObservation:",)
"""Keep a model from inventing results, if its provider supports stop strings."""


class TextCalling(Calling):
    """Tool calls in ReAct text.

    Args:
        prompts: the agents' prompts.
        can_stop: whether the provider supports stop strings.
        hold: how many characters of unstructured text are held back.
    """

    def __init__(self, prompts: AgentPrompts, *, can_stop: bool, hold: int) -> None:
        self._prompts = prompts
        self._hold = hold
        self._sampling = Sampling(stop=STOP_STRINGS) if can_stop else None

    @override
    async def request(self, goal: Goal, turns: tuple[Turn, ...], tools: tuple[Tool, ...]) -> TextCompletionRequest:
        rendered = await self._prompts.render(
            "agent-react",
            question=goal.question,
            instructions=goal.instructions,
            tools=[
                {"name": tool.name, "description": tool.description, "arguments": tool.parameters} for tool in tools
            ],
            turns=[msgspec.to_builtins(turn) for turn in turns],
        )
        return TextCompletionRequest(rendered.system, rendered.prompt, streaming=True, sampling=self._sampling)

    @override
    def reader(self, *, acts: bool) -> Reader:
        return TextReader(ReactParser(actions=acts, hold=self._hold))


class TextReader(Reader):
    """Parses the text; reasoning that the provider reports apart becomes events of its own."""

    def __init__(self, parser: ReactParser) -> None:
        self._parser = parser

    @override
    def feed(self, record: TextCompletionResponse) -> list[Event]:
        events: list[Event] = [ReasoningDelta(record.reasoning)] if record.reasoning else []
        return events + self._parser.feed(record.response) if record.response else events

    @override
    def end(self) -> list[Event]:
        return self._parser.end()
