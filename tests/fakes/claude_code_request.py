"""A request of the shape and size of Claude Code's first one: 27 tools, 76 KB of JSON, and all that it sends beside."""

import json
from typing import Any, Final

SIZE: Final = 76_158
"""Bytes of its JSON, as Claude Code 2.1.197 was seen to send."""
TOOLS: Final = 27
HEADERS: Final = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "x-stainless-retry-count": "0",
}
_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def make_first_request(model: str) -> dict[str, Any]:
    """The body; as JSON in UTF-8 (`encode_request`) it has exactly `SIZE` bytes."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": 32000,
        "stream": True,
        "system": [
            {"type": "text", "text": "x-header: 1"},
            {"type": "text", "text": "You are an agent."} | _MARK,
            {"type": "text", "text": ""} | _MARK,
        ],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "<reminder/>"}, {"type": "text", "text": "say hello"} | _MARK],
            },
            {"role": "system", "content": "There are agents of these types."},
        ],
        "tools": [_make_tool(number, 'Writes "é"\n' * 150) for number in range(TOOLS)],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"device_id":"0","session_id":"1"}'},
    }
    body["system"][2]["text"] = "." * (SIZE - len(encode_request(body)))
    return body


def encode_request(body: dict[str, Any]) -> bytes:
    """As Claude Code writes it: without blanks, and with characters as they are."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _make_tool(number: int, description: str) -> dict[str, Any]:
    argument = {"type": "string", "enum": ["a", "b"], "description": "Which one."}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "required": ["which"]}
    properties = {"properties": {"which": argument}, "additionalProperties": False}
    return {"name": f"Tool{number}", "description": description, "input_schema": schema | properties}
