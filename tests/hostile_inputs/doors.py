"""Every door that takes a JSON schema, and where."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

Schema = dict[str, Any]
_TURNS: Final = {"model": "counting", "messages": [{"role": "user", "content": "q"}]}


def _function(schema: Schema) -> Schema:
    return {"type": "function", "function": {"name": "f", "parameters": schema, "strict": True}}


def _named(schema: Schema) -> Schema:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


PLACES: Final[Mapping[str, tuple[str, Callable[[Schema], Mapping[str, Any]]]]] = {
    "native": ("api/v1/text-completion", lambda schema: {"prompt": "q", "schema": schema}),
    "native, streamed": ("api/v1/text-completion", lambda schema: {"prompt": "q", "schema": schema, "streaming": True}),
    "native, a tool": (
        "api/v1/text-completion",
        lambda schema: {"prompt": "q", "tools": [{"name": "f", "parameters": schema, "strict": True}]},
    ),
    "OpenAI": ("v1/chat/completions", lambda schema: {**_TURNS, "response_format": _named(schema)}),
    "OpenAI, streamed": (
        "v1/chat/completions",
        lambda schema: {**_TURNS, "response_format": _named(schema), "stream": True},
    ),
    "OpenAI, a tool": ("v1/chat/completions", lambda schema: {**_TURNS, "tools": [_function(schema)]}),
    "Responses": (
        "v1/responses",
        lambda schema: {
            "model": "counting",
            "input": "q",
            "text": {"format": {"type": "json_schema", "name": "s", "schema": schema}},
        },
    ),
    "Responses, a tool": (
        "v1/responses",
        lambda schema: {
            "model": "counting",
            "input": "q",
            "tools": [{"type": "function", "name": "f", "parameters": schema, "strict": True}],
        },
    ),
    "Messages": (
        "v1/messages",
        lambda schema: {
            **_TURNS,
            "max_tokens": 9,
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
        },
    ),
    "Messages, a tool": (
        "v1/messages",
        lambda schema: {**_TURNS, "max_tokens": 9, "tools": [{"name": "f", "input_schema": schema, "strict": True}]},
    ),
    "Ollama": ("api/chat", lambda schema: {**_TURNS, "format": schema}),
    "TGI": (
        "generate",
        lambda schema: {"inputs": "q", "parameters": {"grammar": {"type": "json", "value": schema}}},
    ),
    "MLC-LLM": (
        "mlc/v1/chat/completions",
        lambda schema: {**_TURNS, "response_format": {"type": "json_object", "schema": json.dumps(schema)}},
    ),
}
"""By name: the path, and the body for a schema."""
