"""Loop -> model with native tool calls: a conversation, and the calls as the provider streams them."""

from typing_extensions import override

from tg_flow.agent.core.calling import Calling, Goal, Reader
from tg_flow.agent.core.prompts import AgentPrompts
from tg_flow.agent.core.turn import Turn
from tg_flow.agent.parsing import Event, InvalidCall, ParsedCall, ReactParser, ReasoningDelta, object_of
from tg_schema import Message, TextCompletionRequest, TextCompletionResponse, Tool, ToolCall, ToolCallDelta
from tg_schema.conversation import whole_calls


class NativeCalling(Calling):
    """Tool calls through the provider's interface.

    Args:
        prompts: the agents' prompts.
    """

    def __init__(self, prompts: AgentPrompts) -> None:
        self._prompts = prompts

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
        return NativeReader(ReactParser(actions=False, hold=0))


def _messages(turn: Turn, number: int) -> list[Message]:
    """A turn as messages. An unreadable call is told as text, since the provider would reject it as a call."""
    ids = [result.id or f"call_{number}_{index}" for index, result in enumerate(turn.results)]
    told = [
        (id_, result) for id_, result in zip(ids, turn.results, strict=True) if _is_call(result.arguments, result.tool)
    ]
    calls = tuple(ToolCall(id_, result.tool, result.arguments) for id_, result in told)
    messages = [Message("assistant", turn.thought, tool_calls=calls)] if turn.thought or calls else []
    messages += [
        Message("tool", result.text, tool_call_id=id_, name=result.tool, error=result.failed) for id_, result in told
    ]
    faults = [result.text for result in turn.results if not _is_call(result.arguments, result.tool)]
    faults += [turn.fault] if turn.fault else []
    return [*messages, Message("user", "\n".join(faults))] if faults else messages


def _is_call(arguments: str, tool: str) -> bool:
    return bool(tool) and object_of(arguments) is not None


class NativeReader(Reader):
    """A call is complete at the end of the turn: pieces of several calls may alternate, and are joined by `index`."""

    def __init__(self, parser: ReactParser) -> None:
        self._parser = parser
        self._pieces: list[ToolCallDelta] = []

    @override
    def feed(self, record: TextCompletionResponse) -> list[Event]:
        events: list[Event] = [ReasoningDelta(record.reasoning)] if record.reasoning else []
        if record.response:
            events += self._parser.feed(record.response)
        if record.tool_calls and not self._pieces:
            events += self._parser.call_follows()
        self._pieces += record.tool_calls
        return events

    @override
    def end(self) -> list[Event]:
        return [*map(_event, whole_calls(self._pieces)), *self._parser.end()]


def _event(call: ToolCallDelta) -> Event:
    name, arguments = call.name or "", call.arguments.strip() or "{}"
    if not name:
        return InvalidCall("the call names no tool", None, arguments, call.id)
    if object_of(arguments) is None:
        return InvalidCall("the arguments are not a JSON object; write one", name, arguments, call.id)
    return ParsedCall(name, arguments, call.id)
