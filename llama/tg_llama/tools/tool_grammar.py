"""Tools of a request -> the grammar of a forced call, in the model's own format."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from tg_llama.grammar import KNOWN, ParameterTypes, escape_text, json_rule, walk_schemas, write_pattern
from tg_llama.tools.tagged_arguments import CLOSE, OPEN
from tg_llama.tools.tool_format import ToolFormat
from tg_schema import Tool
from tg_schema.errors import BadRequest

MAX_FORCED_TOOLS = 64

_BLANK = '" "?'
_NUMBER = "/[0-9]{1,3}/"


def tool_grammar(
    form: ToolFormat, tools: Sequence[Tool], *, several: bool, marks: Mapping[str, int] | None = None
) -> str:
    """The grammar of answers that call one of `tools`; with `several`, one or more calls.

    If a tool is not strict, parts of its schema that a grammar cannot enforce are dropped.

    Args:
        form: how the model writes calls.
        tools: at least one.
        several: whether one call may follow another.
        marks: the form's marks that are control tokens of the model; the other marks are text.

    Raises:
        BadRequest: there are too many tools, or the schema of one cannot be turned into a grammar; the message says
            which.
    """
    if len(tools) > MAX_FORCED_TOOLS:
        raise BadRequest(
            f"tools: at most {MAX_FORCED_TOOLS} can be offered for a forced call; name fewer in allowed_tools"
        )
    encoded = msgspec.json.encode([(tool.name, tool.parameters) for tool in tools])
    return _grammar(form, encoded, several, tuple((marks or {}).items()))


def free_grammar(form: ToolFormat, tools: Sequence[Tool]) -> str:
    """The grammar of answers that are text, a call of one of `tools`, or text and then a call.

    Args:
        form: how the model writes calls. It must have a mark before each call, which this grammar treats as text.
        tools: at least one.

    Raises:
        BadRequest: as `tool_grammar`.
    """
    rules, _, call = tool_grammar(form, tools, several=False).rpartition("\nstart: ")
    anything, mark = write_pattern(".*"), write_pattern(f".*{escape_text(form.begin)}.*")
    lines = [f"TEXT: {anything} & ~{mark}", f"head[suffix={json.dumps(form.begin)}]: {anything}"]
    return "\n".join([rules, *lines, f"start: TEXT | head {call.removeprefix(_text(form.begin))}"])


@lru_cache(maxsize=64)
def _grammar(form: ToolFormat, encoded: bytes, several: bool, marks: tuple[tuple[str, int], ...]) -> str:
    tokens = dict(marks)
    rules: dict[str, str] = {"nl": r'"\n"?'}
    calls: list[str] = []
    for number, (name, parameters) in enumerate(msgspec.json.decode(encoded)):
        try:
            rules |= _argument_rules(form, f"arguments{number}", _arguments_schema(parameters))
        except BadRequest as refused:
            raise BadRequest(f"tools: {name}: a call of it cannot be forced: {refused.message}") from None
        calls.append(_call(form, name, f"arguments{number}", tokens))
    rules["call"] = " | ".join(calls)
    rules["start"] = _answer(form, tokens, several=several)
    return "\n".join([f"{name}: {body}" for name, body in rules.items()])


def _argument_rules(form: ToolFormat, name: str, schema: dict[str, Any]) -> dict[str, str]:
    whole = json_rule(schema)
    if form.syntax == "json":
        return {name: whole}
    return tagged_rules(name, schema) if form.syntax == "tags" else python_rules(name, schema)


def _call(form: ToolFormat, name: str, arguments: str, tokens: dict[str, int]) -> str:
    if form.syntax == "python":
        return f"{_text(f'{name}(')} {arguments} {_text(')')}"
    if form.split:
        named = f"{_text(f'functions.{name}:')} {_NUMBER}" if form.numbered else _text(name)
        call = f"{named} {_mark(form.split, tokens)} {arguments}"
        return f"{_mark(form.item, tokens)} {call} {_mark(form.item_end, tokens)}"
    quoted = json.dumps(name, ensure_ascii=False)
    number = [_text(f'"{form.id_key}":'), _BLANK, _text('"'), _NUMBER, _text('",'), _BLANK] if form.id_key else []
    head = [_text("{"), *number, _text(f'"{form.name_key}":'), _BLANK, _text(f"{quoted},"), _BLANK]
    head += [_text(f'"{form.arguments_key}":'), _BLANK]
    return " ".join([*head, arguments, _text("}")])


def _answer(form: ToolFormat, tokens: dict[str, int], *, several: bool) -> str:
    begin, end = _mark(form.begin, tokens), _mark(form.end, tokens)
    if form.listed:
        more = f"({_text(',')} {_BLANK} call)*" if several else ""
        return f"{begin} {_BLANK} {_text('[')} call {more} {_text(']')} {end}"
    if form.item and not form.alone:
        return f"{begin} call {'(nl call)*' if several else ''} {end}"
    one = f"{begin} nl call nl {end}" if form.end else f"{begin} call"
    # Without a mark, a second call could not be told apart from text.
    return f"{one} (nl {one})*" if several and form.begin else one


def _text(text: str) -> str:
    return write_pattern(escape_text(text))


def _mark(mark: str, tokens: dict[str, int]) -> str:
    parts = re.split(f"({'|'.join(map(re.escape, tokens))})", mark) if tokens else [mark]
    return " ".join([f"<[{tokens[part]}]>" if part in tokens else _text(part) for part in parts if part])


def _arguments_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a tool's arguments; changes `schema`, which must be freshly decoded."""
    for inner in walk_schemas(schema):
        # A grammar cannot enforce other keywords.
        for word in inner.keys() - KNOWN:
            del inner[word]
    if not {"type", "anyOf", "oneOf", "allOf", "$ref"} & schema.keys():
        schema["type"] = "object"
    if schema.get("type") == "object" and not schema.get("properties") and "additionalProperties" not in schema:
        schema["additionalProperties"] = False
    return schema


_KEY = re.compile(r"[\w.\-$]{1,200}")
_COMMA = '", "'

Rules = dict[str, str]


def tagged_rules(name: str, schema: dict[str, Any]) -> Rules:
    """The rule `name` for arguments between tags, in the order of the properties, and the rules that it needs.

    For a string, only `enum`, `const` and its lengths are enforced.

    Raises:
        BadRequest: the schema does not name its properties, or a property's name cannot stand in a tag.
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
    """The rule `name` for named arguments in Python's syntax, in the order of the properties. As `tagged_rules`.

    Constants within lists and objects are written as in JSON, which the reader of calls accepts too.
    """
    rules: Rules = {}
    types = ParameterTypes(schema)
    properties = _properties(schema)
    # Build it from the end: several rules share the rule for the remaining arguments.
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
    """The rule `name` for a value and its closing tag, and the rules that it needs."""
    close = f"\n{CLOSE}\n"
    if "string" not in types:
        return {name: f"{name}j {_text(close)}", f"{name}j": _part(schema, root)}
    values = _values(schema)
    if values is not None:
        texts = [value if isinstance(value, str) else msgspec.json.encode(value).decode() for value in values]
        return {name: f"({' | '.join(map(_text, texts))}) {_text(close)}"}
    low, high = (schema.get(word) if isinstance(schema, dict) else None for word in ("minLength", "maxLength"))
    repeated = f"{{{low or 0},{'' if high is None else high}}}"
    # The suffix ends a text at the first closing tag; otherwise the text would include everything that follows.
    return {f"{name}[suffix={json.dumps(close)}]": write_pattern(f".{repeated}")}


def _values(schema: Any) -> list[Any] | None:
    """The values that a schema lists; None if it does not list any."""
    if not isinstance(schema, dict):
        return None
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _python_value(schema: Any, root: dict[str, Any], types: frozenset[str]) -> str:
    if not types <= {"boolean", "null"}:
        return _part(schema, root)
    words = [*((True, False) if "boolean" in types else ()), *((None,) if "null" in types else ())]
    listed = _values(schema)
    return " | ".join([_text(str(word)) for word in (words if listed is None else listed)])


def _part(schema: Any, root: dict[str, Any]) -> str:
    """The body of a rule for a property's values, with the definitions that its references need."""
    if not isinstance(schema, dict):
        schema = {} if schema else {"enum": []}
    return json_rule(schema | {word: root[word] for word in ("$defs", "definitions") if word in root})
