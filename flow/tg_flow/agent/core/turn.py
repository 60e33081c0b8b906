"""Loop -> model: the past turns of a dialog, as values from which a request for any model can be built."""

from collections.abc import Iterable

import msgspec

from tg_schema import AgentStep, encode
from tg_schema.conversation import ReasoningPart


class Result(msgspec.Struct, frozen=True):
    """One call and its result.

    Attributes:
        tool: its name; "" if the model gave none.
        arguments: JSON text, as the model wrote it, perhaps cut off.
        text: the observation, or what went wrong.
        failed: whether the tool or the call failed.
        id: the provider's id of the call.
        signature: the provider's proof of the call, which it wants back in the next request.
    """

    tool: str
    arguments: str
    text: str
    failed: bool = False
    id: str | None = None
    signature: str | None = None


class Turn(msgspec.Struct, frozen=True):
    """One turn of the model, with the results of its calls.

    Attributes:
        thought: the text of the turn.
        results: its calls with their results.
        fault: the error of the turn, as a sentence for the model; None = no error.
        thinking: reasoning that its provider wants back in the next request.
    """

    thought: str
    results: tuple[Result, ...] = ()
    fault: str | None = None
    thinking: tuple[ReasoningPart, ...] = ()


def turns_of(history: Iterable[AgentStep]) -> tuple[Turn, ...]:
    """The turns of a request's history."""
    return tuple(
        Turn(
            step.thought or "",
            (Result(step.action, encode(step.arguments or {}).decode(), step.observation or ""),)
            if step.action
            else (),
        )
        for step in history
    )


def state_after(state: str, turns: Iterable[Turn], next_states: dict[str, str | None]) -> str:
    """The dialog's state, which the last successful call of a tool with a `state` has set."""
    for turn in turns:
        for result in turn.results:
            if not result.failed:
                state = next_states.get(result.tool) or state
    return state
