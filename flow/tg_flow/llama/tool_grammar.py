"""Tools of a request -> the GBNF grammar of a forced call, in the model's own format."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from tg_flow.llama.json_grammar import json_rules, literal, write_grammar
from tg_flow.llama.schema_keywords import KNOWN
from tg_flow.llama.tool_format import ToolFormat
from tg_schema import Tool
from tg_schema.errors import BadRequest

MAX_FORCED_TOOLS = 64
"""Each may be open at the same time, which costs time at each token."""


def tool_grammar(form: ToolFormat, tools: Sequence[Tool], *, several: bool) -> str:
    """The grammar of answers that call one of `tools`, or, with `several`, one after the other.

    Of the schema of a tool that is not strict, what a grammar cannot enforce is left out.

    Raises:
        BadRequest: there are too many tools, or the schema of one cannot be turned into a grammar; the message says
            which.
    """
    if len(tools) > MAX_FORCED_TOOLS:
        raise BadRequest(f"tools: a call can be forced of {MAX_FORCED_TOOLS} at most; name fewer in allowed_tools")
    return _grammar(form, msgspec.json.encode([(tool.name, tool.parameters) for tool in tools]), several)


@lru_cache(maxsize=64)
def _grammar(form: ToolFormat, encoded: bytes, several: bool) -> str:
    rules: dict[str, str] = {"root": "", "nl": r'"\n"?'}
    calls: list[str] = []
    for number, (name, parameters) in enumerate(msgspec.json.decode(encoded)):
        try:
            arguments, more = json_rules(_arguments_schema(parameters), f"t{number}")
        except BadRequest as refused:
            raise BadRequest(f"tools: {name}: a call of it cannot be forced: {refused.message}") from None
        rules |= more
        calls.append(_call(form, name, arguments))
    rules["call"] = " | ".join(calls)
    rules["root"] = _answer(form, several=several)
    return write_grammar(rules)


def _call(form: ToolFormat, name: str, arguments: str) -> str:
    if form.split:
        return f"{literal(name, quoted=False)} {literal(form.split, quoted=False)} {arguments}"
    key = literal(form.arguments_key)
    return f'"{{" {literal("name")} ":" ws {literal(name)} "," ws {key} ":" ws {arguments} "}}"'


def _answer(form: ToolFormat, *, several: bool) -> str:
    begin, end = literal(form.begin, quoted=False), literal(form.end, quoted=False)
    if form.listed:
        more = '("," ws call)*' if several else ""
        return f'{begin} ws "[" call {more} "]" {end}'
    one = f"{begin} nl call nl {end}" if form.end else f"{begin} call"
    # Without a mark, a second call could not be told from text.
    return f"{one} (nl {one})*" if several and form.begin else one


def _arguments_schema(parameters: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = _loosened(parameters)
    if not {"type", "anyOf", "oneOf", "allOf", "$ref"} & schema.keys():
        schema["type"] = "object"
    if schema.get("type") == "object" and not schema.get("properties") and "additionalProperties" not in schema:
        schema["additionalProperties"] = False
    return schema


def _loosened(schema: Any) -> Any:
    """The schema without the keywords that a grammar cannot enforce."""
    if not isinstance(schema, dict):
        return schema
    return {word: _loosened_value(word, value) for word, value in schema.items() if word in KNOWN}


def _loosened_value(word: str, value: Any) -> Any:
    if word in {"properties", "$defs", "definitions"} and isinstance(value, dict):
        return {name: _loosened(schema) for name, schema in value.items()}
    if word in {"anyOf", "oneOf", "allOf", "prefixItems"} and isinstance(value, list):
        return [_loosened(schema) for schema in value]
    return _loosened(value) if word in {"items", "additionalProperties"} else value
