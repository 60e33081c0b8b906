"""Loop -> model with native tool calls: a conversation, and the calls as the provider streams them."""

from typing_extensions import override

from tg_flow.agent.core.calling import Calling, Goal, Reader
from tg_flow.agent.core.prompts import AgentPrompts
from tg_flow.agent.core.turn import Turn
from tg_flow.agent.parsing import Event, InvalidCall, ParsedCall, ReactParser, ReasoningDelta, object_of
from tg_schema import Message, TextCompletionRequest, TextCompletionResponse, TextPart, Tool, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart, whole_calls


class NativeCalling(Calling):
    """Tool calls through the provider's interface.

    Args:
        prompts: the agents' prompts.
        keeps_thinking: whether every processor of the model takes back the thinking of earlier turns.
        hold: how many characters of unstructured text are held back.
    """

    def __init__(self, prompts: AgentPrompts, *, keeps_thinking: bool, hold: int) -> None:
        self._prompts = prompts
        self._hold = hold
        self._keeps_thinking = keeps_thinking

    @override
    async def request(self, goal: Goal, turns: tuple[Turn, ...], tools: tuple[Tool, ...]) -> TextCompletionRequest:
        rendered = await self._prompts.render(
            "agent-native", question=goal.question, instructions=goal.instructions, tools=[tool.name for tool in tools]
        )
        messages = [Message("user", rendered.prompt)]
        for number, turn in enumerate(turns):
            messages += _messages(turn, number)
        return TextCompletionRequest(rendered.system, streaming=True, messages=tuple(messages), tools=tools)

    @override
    def reader(self, *, acts: bool) -> Reader:
        return NativeReader(ReactParser(actions=False, hold=self._hold), keeps_thinking=self._keeps_thinking)


def _messages(turn: Turn, number: int) -> list[Message]:
    """A turn as messages. An unreadable call is sent as text, since the provider would reject it as a call."""
    # A client's history and some providers have no ids, but a call and its result must have the same one.
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


class NativeReader(Reader):
    """A call is complete at the end of the turn: pieces of several calls may alternate, and are joined by `index`."""

    def __init__(self, parser: ReactParser, *, keeps_thinking: bool) -> None:
        self._parser = parser
        self._keeps_thinking = keeps_thinking
        self._pieces: list[ToolCallDelta] = []
        self._reasoning: list[str] = []
        self._thinking: tuple[ReasoningPart, ...] = ()

    @override
    def feed(self, record: TextCompletionResponse) -> list[Event]:
        events: list[Event] = [ReasoningDelta(record.reasoning)] if record.reasoning else []
        self._keep_thinking(record)
        if record.response:
            events += self._parser.feed(record.response)
        # This begins the turn's first call, so the text before it was a thought, not an answer.
        if record.tool_calls and not self._pieces:
            events += self._parser.call_follows()
        self._pieces += record.tool_calls
        return events

    @override
    def end(self) -> list[Event]:
        return [*map(_event, whole_calls(self._pieces)), *self._parser.end()]

    @override
    def thinking(self) -> tuple[ReasoningPart, ...]:
        return self._thinking if self._keeps_thinking else ()

    def _keep_thinking(self, record: TextCompletionResponse) -> None:
        """A signature ends a piece of reasoning; without one the provider does not want it back."""
        self._reasoning += [record.reasoning] if record.reasoning else []
        if record.signature is not None:
            self._thinking += (ReasoningPart("".join(self._reasoning), record.signature),)
            self._reasoning = []


def _event(call: ToolCallDelta) -> Event:
    name, arguments = call.name or "", call.arguments.strip() or "{}"
    if not name:
        return InvalidCall("the call names no tool", None, arguments, call.id, call.signature)
    if object_of(arguments) is None:
        return InvalidCall("the arguments are not a JSON object; write one", name, arguments, call.id, call.signature)
    return ParsedCall(name, arguments, call.id, call.signature)
