"""Schema of a tool's arguments -> the rules of arguments that are not written as one JSON object."""

import json
import re
from typing import Any

import msgspec

from tg_llama.grammar import ParameterTypes, escape_text, json_rule, write_pattern
from tg_llama.tools.tagged_arguments import CLOSE, OPEN
from tg_schema.errors import BadRequest

_KEY = re.compile(r"[\w.\-$]{1,200}")
_COMMA = '", "'

Rules = dict[str, str]


def tagged_rules(name: str, schema: dict[str, Any]) -> Rules:
    """The rule `name` of arguments between tags, one for each property and in their order, and the rules that it needs.

    A string is held to `enum`, `const` and its lengths alone.

    Raises:
        BadRequest: the schema does not name properties, or one by a name that cannot stand in a tag.
    """
    rules: Rules = {}
    types = ParameterTypes(schema)
    parts = []
    for number, (key, value, required) in enumerate(_properties(schema)):
        parameter = f"{name}x{number}"
        rules |= _tagged_value(f"{parameter}v", value, schema, types.of(value))
        rules[parameter] = _text(f"{OPEN}{key}>\n") + f" {parameter}v"
        parts.append(parameter if required else f"{parameter}?")
    return rules | {name: " ".join([_text("\n"), *parts])}


def python_rules(name: str, schema: dict[str, Any]) -> Rules:
    """The rule `name` of named arguments as Python has them, in the order of the properties. As `tagged_rules`.

    The words within lists and objects are JSON's, which the reader of calls knows too.
    """
    rules: Rules = {}
    types = ParameterTypes(schema)
    properties = _properties(schema)
    # Backwards: the rest of the arguments, with a comma before each, is a rule that several others share.
    rest = '""'
    firsts: list[str] = []
    for number, (key, value, required) in reversed(list(enumerate(properties))):
        argument = f"{name}x{number}"
        rules |= {
            argument: f"{_text(f'{key}=')} {argument}v",
            f"{argument}v": _python_value(value, schema, types.of(value)),
        }
        firsts = [f"{argument} {rest}", *([] if required else firsts)]
        if number:
            rules[f"{argument}r"] = f"{_COMMA} {argument} {rest}" if required else f"({_COMMA} {argument})? {rest}"
            rest = f"{argument}r"
    nothing = [] if any(required for _, _, required in properties) else ['""']
    return rules | {name: " | ".join([*firsts, *nothing])}


def _properties(schema: dict[str, Any]) -> list[tuple[str, Any, bool]]:
    """Each property's name, its schema, and whether it is required."""
    if schema.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
        raise BadRequest(
            "schema: this model writes arguments one by one: name them in properties, without $ref or anyOf"
        )
    properties = schema.get("properties") or {}
    unfit = next((key for key in properties if not _KEY.fullmatch(key)), None)
    if unfit is not None:
        raise BadRequest(f"schema: this model cannot write an argument of this name: {unfit[:100]!r}")
    required = schema.get("required") or ()
    return [(key, value, key in required) for key, value in properties.items()]


def _tagged_value(name: str, schema: Any, root: dict[str, Any], types: frozenset[str]) -> Rules:
    """The rule `name` of a value and its closing tag, and those that it needs."""
    close = f"\n{CLOSE}\n"
    if "string" not in types:
        return {name: f"{name}j {_text(close)}", f"{name}j": _part(schema, root)}
    values = _values(schema)
    if values is not None:
        return {name: f"({' | '.join([_text(_plain(value)) for value in values])}) {_text(close)}"}
    low, high = (schema.get(word) if isinstance(schema, dict) else None for word in ("minLength", "maxLength"))
    repeated = f"{{{low or 0},{'' if high is None else high}}}"
    # With its suffix a text ends at the first closing tag; else it would take in all that follows.
    return {f"{name}[suffix={json.dumps(close)}]": write_pattern(f".{repeated}")}


def _values(schema: Any) -> list[Any] | None:
    """The values that a schema lists; None if it lists none."""
    if not isinstance(schema, dict):
        return None
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _python_value(schema: Any, root: dict[str, Any], types: frozenset[str]) -> str:
    if not types <= {"boolean", "null"}:
        return _part(schema, root)
    words = [*((True, False) if "boolean" in types else ()), *((None,) if "null" in types else ())]
    listed = _values(schema)
    return " | ".join([_text(str(word)) for word in (words if listed is None else listed)])


def _part(schema: Any, root: dict[str, Any]) -> str:
    """The body of a rule of a property's values, with the definitions that its references need."""
    if not isinstance(schema, dict):
        schema = {} if schema else {"enum": []}
    return json_rule(schema | {word: root[word] for word in ("$defs", "definitions") if word in root})


def _text(text: str) -> str:
    return write_pattern(escape_text(text))
