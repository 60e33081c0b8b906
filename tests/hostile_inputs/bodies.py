"""Bodies of every door -> the same with something wrong at one place: a number, a text or a name that is none."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from tests.hostile_inputs.numbers import NUMBERS
from tests.openapi.document import OPERATIONS

VALUES: Final[Mapping[str, bytes]] = {
    **NUMBERS,
    "a text that is no UTF-8": b'"\xff"',
    "half a surrogate pair": b'"\\ud800"',
    "a name that is no UTF-8": b'{"\xff":1}',
    "a value in it that is no UTF-8": b'{"a":["\xc3\x28"]}',
    "nested": b"[" * 600 + b"]" * 600,
    "nested objects": b'{"a":' * 600 + b"1" + b"}" * 600,
    "NUL": b'"\\u0000"',
}
"""What stands in place of a value."""
NAMES: Final = (b'"\xff"', b'"\\ud800"', b'""', b'"' + b"a" * 5000 + b'"')
"""What stands in place of a name."""
_TOOL_CALL: Final = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
_TURNS: Final = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "t"}]},
    {"role": "assistant", "content": "a", "tool_calls": [_TOOL_CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "r"},
]
_SCHEMA: Final = {"type": "object", "properties": {"a": {"enum": [1]}}}
_FUNCTION: Final = {"type": "function", "function": {"name": "f", "description": "d", "parameters": _SCHEMA}}
_NUMBERS: Final = {"temperature": 1, "top_p": 1, "seed": 1, "stop": ["x"], "logit_bias": {"1": 1}}
MORE: Final[Mapping[str, Mapping[str, Any]]] = {
    "text-completion": {
        "sampling": _NUMBERS | {"max_tokens": 1, "logprobs": 1},
        "tools": [{"name": "f", "parameters": _SCHEMA}],
        "reasoning": {"effort": "low"},
    },
    "chat/completions": {"messages": _TURNS, "tools": [_FUNCTION], "metadata": {"a": "b"}, **_NUMBERS},
    "v1/completions": _NUMBERS | {"n": 1},
    "v1/responses": {"tools": [{"type": "function", "name": "f", "parameters": _SCHEMA}], "metadata": {"a": "b"}},
    "v1/messages": {
        "messages": [
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]},
        ],
        "tools": [{"name": "f", "input_schema": _SCHEMA}],
        "metadata": {"user_id": "u"},
    },
    "api/chat": {
        "messages": _TURNS[1:2],
        "tools": [_FUNCTION],
        "options": {"num_predict": 1, "seed": 1, "stop": ["x"]},
    },
    "generate": {
        "parameters": {"max_new_tokens": 1, "seed": 1, "stop": ["x"], "grammar": {"type": "json", "value": _SCHEMA}}
    },
}
"""Fields that the examples do not have, for paths with this in them."""


class Body(NamedTuple):
    """A body, for one operation, and what is wrong with it."""

    method: str
    path: str
    data: bytes
    wrong: str


def make_bodies() -> Iterator[Body]:
    """A body of every operation, with each wrong thing at each of its places."""
    for operation in OPERATIONS:
        for name, example in operation.examples.items():
            if not isinstance(example, dict):
                continue
            body: dict[str, Any] = {**example, "unknown": 1}
            for part, fields in MORE.items():
                body |= fields if part in operation.path else {}
            for wrong, data in _spoil(body):
                yield Body(operation.method, operation.path, data, f"{name}: {wrong}")


def _spoil(value: Any, place: str = "$") -> Iterator[tuple[str, bytes]]:
    """JSON with one thing wrong, and what that is."""
    for name, wrong in VALUES.items() if place != "$" else ():
        yield f"{place} is {name}", wrong
    if isinstance(value, dict):
        for name in value:
            rest = {other: inner for other, inner in value.items() if other != name}
            for what, data in _spoil(value[name], f"{place}.{name}"):
                yield what, _join(b"{}", [*_pairs(rest), json.dumps(name).encode() + b":" + data])
            for wrong in NAMES:
                data = wrong + b":" + json.dumps(value[name]).encode()
                yield f"{place}.{name} is named {wrong[:9]!r}", _join(b"{}", [*_pairs(rest), data])
    elif isinstance(value, list):
        items = [json.dumps(item).encode() for item in value]
        for at, item in enumerate(value):
            for what, data in _spoil(item, f"{place}[{at}]"):
                yield what, _join(b"[]", [*items[:at], data, *items[at + 1 :]])


def _pairs(fields: Mapping[str, Any]) -> list[bytes]:
    return [json.dumps(name).encode() + b":" + json.dumps(value).encode() for name, value in fields.items()]


def _join(brackets: bytes, parts: list[bytes]) -> bytes:
    return brackets[:1] + b",".join(parts) + brackets[1:]
