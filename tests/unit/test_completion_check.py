"""What no provider need look at, because the base has."""

from typing import Any

import pytest

from tg_base.llm.validation import check_completion
from tg_schema import ImagePart, Message, TextCompletionRequest, Tool, ToolCall
from tg_schema.errors import BadRequest

TOOLS = (Tool("weather"), Tool("clock"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "prompt is missing"),
        ({"messages": (Message("system", "s"),)}, "prompt is missing"),
        ({"prompt": "p", "response_format": "xml"}, "response_format"),
        ({"messages": (Message("user", (ImagePart(),)),)}, r"messages\[0\]: an image"),
        ({"messages": (Message("user", (ImagePart(data="QQ==", url="https://x/"),)),)}, r"messages\[0\]: an image"),
        ({"prompt": "p", "messages": (Message("user", tool_calls=(ToolCall("1", "f"),)),)}, "tool_calls belong"),
        ({"messages": (Message("user", "u"), Message("tool", "t"))}, r"messages\[1\]: .*tool_call_id"),
        ({"prompt": "p", "tools": (Tool("a"), Tool("a"))}, "tools: each"),
        ({"prompt": "p", "tools": (Tool(""),)}, "tools: each"),
        ({"prompt": "p", "tool_choice": "required"}, "tool_choice"),
        ({"prompt": "p", "tools": TOOLS, "tool_choice": "calendar"}, "tool_choice"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        check_completion(TextCompletionRequest(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "p"},
        {"prompt": "p", "tool_choice": "none"},
        {"messages": (Message("user", (ImagePart(data="QQ=="), ImagePart(url="https://x/"))),)},
        {"prompt": "p", "tools": TOOLS, "tool_choice": "clock"},
        {"prompt": "p", "tools": TOOLS, "tool_choice": "required", "response_format": "json"},
        {"messages": (Message("assistant", tool_calls=(ToolCall("1", "f"),)), Message("tool", tool_call_id="1"))},
    ],
)
def test_a_request_that_makes_sense_passes(fields: dict[str, Any]) -> None:
    check_completion(TextCompletionRequest(**fields))
