"""What a client saw -> a cell of the table; whoever saw something else than it should gets no cell."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

TEXT: Final = "Hello world €."
CITY: Final = {"city": "Paris"}
RESULT: Final = "sunny in Paris"
WEATHER: Final = f"It is {RESULT}."
ANNA: Final = "Anna"
NAME: Final = "Your name is Anna."
TOO_LONG: Final = re.compile(
    r"ContextOverflow|ContextWindowExceeded|context_length_exceeded|prompt is too long|context length|token limit",
    re.IGNORECASE,
)
"""By which clients tell that a prompt is too long: OpenAI's code, Anthropic's words, and what they make of both."""

Seen = Mapping[str, Any]


def describe(feature: str, seen: Seen) -> str:
    """The cell.

    Raises:
        AssertionError: that is not how this feature works.
    """
    assert "failed" not in seen, f"{feature}: {seen['failed']}"
    return FEATURES[feature](seen)


def _text(seen: Seen) -> str:
    texts = {way: text if isinstance(text, str) else "".join(text) for way, text in seen.items()}
    assert texts == dict.fromkeys(texts, TEXT), texts
    return ", ".join(texts)


def _tools(seen: Seen) -> str:
    # A coding agent gets the weather by a tool of its own, with words around it.
    assert seen.get("called", CITY) == CITY, seen
    assert seen["said"] == WEATHER or ("called" not in seen and RESULT in seen["said"]), seen
    return "called, answered"


def _schema(seen: Seen) -> str:
    for made in seen.values():
        assert (made.get("name"), made.get("age")) == (ANNA, None), seen
    return ", ".join(seen)


def _second_turn(seen: Seen) -> str:
    assert seen == dict.fromkeys(seen, NAME), seen
    return ", ".join(kept if kept == "history" else f"`{kept}`" for kept in seen)


def _too_long(seen: Seen) -> str:
    told = TOO_LONG.search(f"{seen['error']}: {seen['message']}")
    assert told is not None, seen
    return str(seen["error"]) if told[0] in seen["error"] else f"{seen['error']}, {told[0]}"


def _cut(seen: Seen) -> str:
    for raised in seen.values():
        assert raised["error"], raised["message"]
    # Which class it is may depend on what a client has read when the connection breaks.
    return f"{', '.join(seen)}: raises"


FEATURES: Final[Mapping[str, Callable[[Seen], str]]] = {
    "text": _text,
    "tools": _tools,
    "schema": _schema,
    "second_turn": _second_turn,
    "too_long": _too_long,
    "cut": _cut,
}
COLUMNS: Final = ("text", "tools", "optional field", "second turn", "prompt too long", "cut")
"""Their names in the table."""
