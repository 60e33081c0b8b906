"""Loop -> model: what has happened so far in a dialog, as values that can be told again to any model."""

from collections.abc import Iterable

import msgspec

from tg_schema import AgentStep, encode


class Result(msgspec.Struct, frozen=True):
    """One call and what came of it.

    Attributes:
        tool: its name; "" where the model gave none.
        arguments: JSON text, as far as there was any.
        text: the observation, or what went wrong.
        failed: whether the tool, or the call, failed.
        id: the provider's own id of the call.
    """

    tool: str
    arguments: str
    text: str
    failed: bool = False
    id: str | None = None


class Turn(msgspec.Struct, frozen=True):
    """What the model said in one turn, and what it was told.

    Attributes:
        thought: its prose.
        results: its calls.
        fault: why the turn leads nowhere, as a sentence for the model; None = it does not.
    """

    thought: str
    results: tuple[Result, ...] = ()
    fault: str | None = None


def turns_of(history: Iterable[AgentStep]) -> tuple[Turn, ...]:
    """The turns that a requestor says have already happened."""
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
    """The dialog's state: what its last successful call of a tool with a state of its own has made of it."""
    for turn in turns:
        for result in turn.results:
            if not result.failed:
                state = next_states.get(result.tool) or state
    return state
