"""What each program here asks through its client, and how it tells what it has seen: one line of JSON.

The questions are those that `tests/fakes/listening_openai.py` knows. A program is run in the environment of its client,
which has nothing of ours.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel

HELLO = "Say hello."
WEATHER = "How is the weather in Paris?"
WHO = "Who is Anna? Answer in JSON."
NAME = "My name is Anna."
ASK_NAME = "What is my name?"
COUNT = "Count to three."
TOO_LONG = "word " * 30_001

Ask = Callable[[], Awaitable[object]]


class Person(BaseModel):
    """A person, as far as known."""

    name: str
    age: int | None = None


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"sunny in {city}"


async def raised(act: Callable[[], object]) -> dict[str, str]:
    """What a call raises; an answer is no error, and is told as one."""
    try:
        answer = act()
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return {"error": type(error).__name__, "message": describe(error)}
    return {"error": "", "message": f"it takes {answer!r} for an answer"}


def describe(error: BaseException) -> str:
    """Its message, and the code that OpenAI's clients read from the body."""
    code = getattr(error, "code", None)
    return f"{code}: {error}" if isinstance(code, str) else str(error)


def tell(doors: Mapping[str, Mapping[str, Ask]]) -> None:
    """Ask everything at each door, one after the other, and print what was seen."""
    print(json.dumps(asyncio.run(_ask(doors)), default=_plain))


async def _ask(doors: Mapping[str, Mapping[str, Ask]]) -> dict[str, dict[str, object]]:
    seen: dict[str, dict[str, object]] = {}
    for door, features in doors.items():
        seen[door] = {}
        for name, act in features.items():
            try:
                seen[door][name] = await act()
            except Exception as error:  # noqa: BLE001 - the row tells it
                seen[door][name] = {"failed": f"{type(error).__name__}: {describe(error)}"[:1000]}
    return seen


def _plain(value: Any) -> object:
    return value.model_dump() if isinstance(value, BaseModel) else str(value)
