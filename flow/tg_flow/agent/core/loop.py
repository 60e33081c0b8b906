"""Pattern -> loop -> records: ask the model, run its tool calls, return the results to it, until it answers."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from tg_flow.agent.core.calling import Goal, Reader
from tg_flow.agent.core.dialog import Dialog
from tg_flow.agent.core.open_turn import Observation, OpenCall, OpenTurn, make_observation
from tg_flow.agent.core.tool_calls import PreparedCall, run_concurrently
from tg_flow.agent.core.turn import Turn
from tg_flow.agent.parsing import (
    Event,
    InvalidCall,
    Kind,
    MessageEnd,
    ParsedCall,
    ReactParser,
    ReasoningDelta,
    TextDelta,
    object_of,
)
from tg_flow.prompt import Rendered
from tg_schema import AgentResponse, TextCompletionRequest, Usage
from tg_schema.errors import ProtocolError, TooLarge

MAX_FAULTS = 2
"""Consecutive turns with neither a valid call nor an answer, after which the dialog ends with an error."""


class AgentLoop:
    """One loop of a dialog. Its whole state is in its turns, so it can continue from the turns of another loop.

    Args:
        dialog: the dialog of this loop.
        goal: the question to answer.
        turns: the previous turns.
        speaks: the kind of message for its answer; within a plan, the answer of a step is a thought.

    Attributes:
        answer: the answer, after all records were yielded. Its message is not ended yet.
    """

    def __init__(self, dialog: Dialog, goal: Goal, turns: tuple[Turn, ...], *, speaks: Kind = "answer") -> None:
        self.answer = ""
        self._dialog = dialog
        self._messages = dialog.messages
        self._goal = goal
        self._turns = turns
        self._speaks = speaks

    async def records(self) -> AsyncGenerator[AgentResponse, None]:
        """All messages, calls and observations of the loop.

        Raises:
            ProtocolError: the model makes no valid tool call, even after it was told what was wrong.
            TooLarge: the model reached its token limit before a call or an answer, twice in a row.
            TgError: the model failed, or a limit is reached.
        """
        faults = done = 0
        while True:
            self._dialog.check_iterations(done)
            done += 1
            turn, calling = OpenTurn(), self._dialog.calling
            tools = tuple(tool.declaration for tool in self._dialog.tools.values())
            request = await calling.request(self._goal, self._turns, tools)
            async with aclosing(self._read(request, calling.reader(acts=bool(tools)), turn)) as records:
                async for record in records:
                    yield record
            turn.cut = self._dialog.finish_reason == "length"
            if (answer := turn.answer) is not None:
                self.answer = answer
                return
            for record in self._messages.close():
                yield record
            async with aclosing(self._observe(turn.calls)) as observed:
                async for record in observed:
                    yield record
            self._turns += (turn.turn,)
            self._dialog.keep(turn.turn)
            # Only consecutive faults count: a model that corrects its call may go on.
            faults = faults + 1 if turn.faulty else 0
            if faults == MAX_FAULTS and turn.cut:
                raise TooLarge("the model reached its token limit before a tool call or an answer; raise the limit")
            if faults == MAX_FAULTS:
                raise ProtocolError("the model makes no valid tool call; ask another model")

    async def say(self, asked: Rendered, reads: type[Reader] = Reader) -> AsyncGenerator[AgentResponse, None]:
        """The messages of one turn that has its own prompt and no tools.

        Afterwards `answer` is the answer, or the whole text if the turn has only thoughts.

        Raises:
            TgError: the model failed, or a limit is reached.
        """
        turn, reader = OpenTurn(), reads(ReactParser(actions=False, hold=self._dialog.model.hold))
        request = TextCompletionRequest(asked.system, asked.prompt, streaming=True)
        async with aclosing(self._read(request, reader, turn)) as records:
            async for record in records:
                yield record
        self.answer = turn.answer or turn.thought

    async def _read(
        self, request: TextCompletionRequest, reader: Reader, turn: OpenTurn
    ) -> AsyncGenerator[AgentResponse, None]:
        async with aclosing(self._dialog.ask(request)) as answers:
            async for answer in answers:
                for event in reader.feed(answer):
                    for record in self._convert(event, turn):
                        yield record
        for event in reader.end():
            for record in self._convert(event, turn):
                yield record
        turn.thinking = reader.thinking()
        for record in self._messages.end_aside():
            yield record

    def _convert(self, event: Event, turn: OpenTurn) -> list[AgentResponse]:
        match event:
            case TextDelta(kind, text):
                ended = self._end_message(turn, reasoning=False)
                turn.add_text(kind, text)
                return [*ended, *self._messages.add_text(self._speaks if kind == "answer" else "thought", text)]
            case ReasoningDelta(text):
                return [*self._end_message(turn, reasoning=True), *self._messages.think(text)]
            case MessageEnd():
                turn.close()
                return self._messages.close()
            case ParsedCall() | InvalidCall():
                return [*self._messages.close(), *self._call(event, turn)]

    def _end_message(self, turn: OpenTurn, *, reasoning: bool) -> list[AgentResponse]:
        """End the open message if reasoning that the provider sends separately begins or ends."""
        if turn.reasoning == reasoning:
            return []
        turn.reasoning = reasoning
        return [] if self._messages.answering else self._messages.close()

    def _call(self, event: ParsedCall | InvalidCall, turn: OpenTurn) -> list[AgentResponse]:
        """The record of an action; a call without a tool's name has none."""
        message = self._messages.next_id()
        call = OpenCall(message, event)
        turn.calls.append(call)
        if not call.tool:
            return []
        return [
            AgentResponse(
                "action",
                _action(call.tool, event.arguments),
                end_of_message=True,
                message_id=message,
                tool=call.tool,
                arguments=event.arguments,
                call_id=call.id,
            )
        ]

    async def _fault(self, event: ParsedCall | InvalidCall) -> str | None:
        """Why a call cannot be made; None = it can be made."""
        if isinstance(event, InvalidCall):
            return event.fault
        tools = self._dialog.tools
        if event.tool not in tools:
            return f'there is no tool "{event.tool[:100]}" now; there are: {", ".join(tools) or "none"}'
        wrong = await self._dialog.toolbox.fault(event.tool, object_of(event.arguments) or {})
        return None if wrong is None else f"the arguments do not fit the tool's schema: {wrong}"

    async def _observe(self, calls: list[OpenCall]) -> AsyncGenerator[AgentResponse, None]:
        for call in calls:
            call.fault = await self._fault(call.event)
            if call.fault is not None:
                call.pieces.append(f"error: {call.fault}")
                if call.tool:
                    yield make_observation(call, self._messages.next_id(), call.pieces[0], end=True)
        tools = self._dialog.tools
        good = [call for call in calls if call.fault is None]
        # Number the observations in the order of the calls, whichever result comes first.
        observations = [Observation(call, self._messages.next_id()) for call in good]
        prepared = [PreparedCall(tools[call.tool], object_of(call.event.arguments) or {}) for call in good]
        async with aclosing(run_concurrently(prepared, self._dialog.remaining)) as outcomes:
            async for index, outcome in outcomes:
                if isinstance(outcome, Usage):
                    self._dialog.usage += outcome
                else:
                    for record in observations[index].records(outcome):
                        yield record


def _action(tool: str, arguments: str) -> str:
    """An action as JSON text, readable for people and programs."""
    value = object_of(arguments)
    return msgspec.json.encode({"tool": tool, "arguments": arguments if value is None else value}).decode()
