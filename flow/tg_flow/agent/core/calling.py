"""Loop -> model -> loop: one turn as a request, and the answer's records as events. Calls are native or in text."""

from dataclasses import dataclass

import msgspec
from typing_extensions import override

from tg_flow.agent.core.prompts import AgentPrompts
from tg_flow.agent.core.turn import Turn
from tg_flow.agent.parsing import Event, InvalidCall, ParsedCall, ReactParser, ReasoningDelta, object_of
from tg_schema import (
    Message,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    Tool,
    ToolCall,
    ToolCallDelta,
)
from tg_schema.conversation import ReasoningPart, whole_calls

STOP_STRINGS = ("\nObservation:",)
"""Keep a model from inventing a tool's results, if its provider supports stop strings."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The question that a loop answers, and further instructions for the model."""

    question: str
    instructions: str = ""


class Reader:
    """Parses one turn of the model, without I/O. Reasoning that the provider sends separately gets its own events."""

    def __init__(self, parser: ReactParser) -> None:
        self._parser = parser

    def feed(self, record: TextCompletionResponse) -> list[Event]:
        """The events of the next record."""
        events: list[Event] = [ReasoningDelta(record.reasoning)] if record.reasoning else []
        return events + self._parser.feed(record.response) if record.response else events

    def end(self) -> list[Event]:
        """The remaining events, at the end of the turn."""
        return self._parser.end()

    def thinking(self) -> tuple[ReasoningPart, ...]:
        """The reasoning that the provider wants back in the next request; none if calls are text."""
        return ()


class NativeReader(Reader):
    """Parses a turn with native calls. They are complete at its end: pieces of several calls may alternate."""

    def __init__(self, parser: ReactParser, *, keeps_thinking: bool) -> None:
        super().__init__(parser)
        self._keeps_thinking = keeps_thinking
        self._pieces: list[ToolCallDelta] = []
        self._reasoning: list[str] = []
        self._thinking: tuple[ReasoningPart, ...] = ()

    @override
    def feed(self, record: TextCompletionResponse) -> list[Event]:
        self._keep_thinking(record)
        events = super().feed(record)
        # The turn's first call begins here, so the text before it was a thought, not an answer.
        if record.tool_calls and not self._pieces:
            events += self._parser.call_follows()
        self._pieces += record.tool_calls
        return events

    @override
    def end(self) -> list[Event]:
        return [*map(_event, whole_calls(self._pieces)), *super().end()]

    @override
    def thinking(self) -> tuple[ReasoningPart, ...]:
        return self._thinking if self._keeps_thinking else ()

    def _keep_thinking(self, record: TextCompletionResponse) -> None:
        """Keep a signed piece of reasoning. The provider does not want unsigned reasoning back."""
        self._reasoning += [record.reasoning] if record.reasoning else []
        if record.signature is not None:
            self._thinking += (ReasoningPart("".join(self._reasoning), record.signature),)
            self._reasoning = []


class TextCalling:
    """Tool calls in ReAct text, for a model without native calls. One prompt holds the whole dialog.

    Args:
        prompts: the agents' prompts.
        can_stop: whether the provider supports stop strings.
        hold: how many characters of unstructured text are held back before they count as the answer.
    """

    def __init__(self, prompts: AgentPrompts, *, can_stop: bool, hold: int) -> None:
        self._prompts = prompts
        self._hold = hold
        self._sampling = Sampling(stop=STOP_STRINGS) if can_stop else None

    async def request(self, goal: Goal, turns: tuple[Turn, ...], tools: tuple[Tool, ...]) -> TextCompletionRequest:
        """The request for the next turn."""
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

    def reader(self, *, acts: bool) -> Reader:
        """The parser of its answer. With `acts` there are tools, so that unstructured text may still be a thought."""
        return Reader(ReactParser(actions=acts, hold=self._hold))


class NativeCalling:
    """Tool calls through the provider's interface.

    Args:
        prompts: the agents' prompts.
        keeps_thinking: whether every processor of the model takes back the thinking of earlier turns.
        hold: how many characters of unstructured text are held back before they count as the answer.
    """

    def __init__(self, prompts: AgentPrompts, *, keeps_thinking: bool, hold: int) -> None:
        self._prompts = prompts
        self._hold = hold
        self._keeps_thinking = keeps_thinking

    async def request(self, goal: Goal, turns: tuple[Turn, ...], tools: tuple[Tool, ...]) -> TextCompletionRequest:
        """As for `TextCalling`, but the dialog is a conversation of several turns."""
        rendered = await self._prompts.render(
            "agent-native", question=goal.question, instructions=goal.instructions, tools=[tool.name for tool in tools]
        )
        messages = [Message("user", rendered.prompt)]
        for number, turn in enumerate(turns):
            messages += _messages(turn, number)
        return TextCompletionRequest(rendered.system, streaming=True, messages=tuple(messages), tools=tools)

    def reader(self, *, acts: bool) -> Reader:
        """As for `TextCalling`, but calls arrive as the provider streams them."""
        return NativeReader(ReactParser(actions=False, hold=self._hold), keeps_thinking=self._keeps_thinking)


def _messages(turn: Turn, number: int) -> list[Message]:
    """A turn as messages. An unreadable call is sent as text, because the provider would reject it as a call."""
    # Clients' histories and some providers have no ids. A call and its result need the same id, so make one.
    ids = [result.id or f"call_{number}_{index}" for index, result in enumerate(turn.results)]
    results = [
        (id_, result) for id_, result in zip(ids, turn.results, strict=True) if _is_call(result.arguments, result.tool)
    ]
    calls = tuple(ToolCall(id_, result.tool, result.arguments, result.signature) for id_, result in results)
    text = (TextPart(turn.thought),) if turn.thought else ()
    content = (*turn.thinking, *text) if turn.thinking else turn.thought
    messages = [Message("assistant", content, tool_calls=calls)] if turn.thought or calls else []
    messages += [
        Message("tool", result.text, tool_call_id=id_, name=result.tool, error=result.failed) for id_, result in results
    ]
    faults = [result.text for result in turn.results if not _is_call(result.arguments, result.tool)]
    faults += [turn.fault] if turn.fault else []
    return [*messages, Message("user", "\n".join(faults))] if faults else messages


def _is_call(arguments: str, tool: str) -> bool:
    return bool(tool) and object_of(arguments) is not None


def _event(call: ToolCallDelta) -> Event:
    name, arguments = call.name or "", call.arguments.strip() or "{}"
    if not name:
        return InvalidCall("the call names no tool", None, arguments, call.id, call.signature)
    if object_of(arguments) is None:
        return InvalidCall("the arguments are not a JSON object; write one", name, arguments, call.id, call.signature)
    return ParsedCall(name, arguments, call.id, call.signature)


Calling = TextCalling | NativeCalling
"""The way in which a model calls tools."""
