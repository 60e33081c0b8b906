"""A model's own chat template -> the format in which the model writes tool calls, detected by rendering samples."""

from dataclasses import dataclass
from typing import Any

import msgspec

from tg_llama.chat.template_sandbox import SandboxedTemplate, TemplateFailed
from tg_llama.tools import TOOL_FORMATS, ToolCallParser, ToolFormat
from tg_schema import Tool
from tg_schema.conversation import whole_calls

_TOOL, _KEY, _VALUE = "probe_tool", "probe_key", "probe value"
_QUESTION, _RESULT, _SYSTEM = "probe question", "probe result", "probe system"


@dataclass(frozen=True, slots=True)
class ToolTemplate:
    """How a template renders tools, calls and results.

    Attributes:
        form: how the model writes calls.
        several: whether an answer may have several calls.
        objects: whether the template needs a call's arguments as an object; otherwise as JSON text.
        system: whether it renders the system's text if there are tools.
    """

    form: ToolFormat
    several: bool
    objects: bool
    system: bool


def examine_tools(template: SandboxedTemplate) -> ToolTemplate | None:
    """What rendered samples show of `template`; None if it renders no tools, or writes calls in an unknown format."""
    try:
        probe = _Probe(template)
    except TemplateFailed:
        return None
    for objects in (True, False):
        form = next((form for form in TOOL_FORMATS if probe.renders_result(form, 1, objects=objects)), None)
        if form is not None:
            several = probe.renders_result(form, 2, objects=objects)
            return ToolTemplate(form, several, objects, probe.renders_system())
    return None


def write_tool(tool: Tool) -> dict[str, Any]:
    """A tool in the form that templates take."""
    # Fill in description and properties: templates concatenate the one and iterate over the other.
    parameters = {"type": "object", "properties": {}} | tool.parameters
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def write_call(number: str, name: str, arguments: dict[str, Any], *, objects: bool) -> dict[str, Any]:
    """A call in the form that templates take, with its arguments as an object or as JSON text."""
    value: Any = arguments if objects else msgspec.json.encode(arguments).decode()
    return {"id": number, "type": "function", "function": {"name": name, "arguments": value}}


class _Probe:
    """A conversation with a tool, its calls and the result of one."""

    def __init__(self, template: SandboxedTemplate) -> None:
        """Raises: TemplateFailed, if the template does not name the tool."""
        self._template = template
        parameters = {"type": "object", "properties": {_KEY: {"type": "string", "description": "Any."}}}
        self._tools = [write_tool(Tool(_TOOL, "It probes.", parameters))]
        self._user = {"role": "user", "content": _QUESTION}
        asked = template.render([self._user], self._tools)
        if _TOOL not in asked:
            raise TemplateFailed
        self._header = _after_question(asked)

    def renders_result(self, form: ToolFormat, calls: int, *, objects: bool) -> bool:
        """Whether the rendered text has the result, and a parser of `form` finds all calls in it."""
        ids = [form.call_id(number, _TOOL) for number in range(calls)]
        made = [write_call(id_, _TOOL, {_KEY: _VALUE}, objects=objects) for id_ in ids]
        result = {"role": "tool", "content": _RESULT, "tool_call_id": ids[0], "name": _TOOL}
        turns: list[dict[str, Any]] = [self._user, {"role": "assistant", "content": "", "tool_calls": made}, result]
        text, rest, _ = _after_question(self._template.try_render(turns, self._tools)).partition(_RESULT)
        if form.begin:
            text = text[text.index(form.begin) :] if form.begin in text else ""
        elif text.startswith(self._header):
            text = text[len(self._header) :].lstrip().removeprefix(form.empty)
        else:
            return False
        if not rest or form.sign not in text or form.end not in text:
            return False
        return _read(form, text) == [(_TOOL, {_KEY: _VALUE})] * calls

    def renders_system(self) -> bool:
        """Whether the system's text is rendered beside a tool."""
        return _SYSTEM in self._template.try_render([{"role": "system", "content": _SYSTEM}, self._user], self._tools)


def _after_question(text: str) -> str:
    return text.rpartition(_QUESTION)[2]


def _read(form: ToolFormat, text: str) -> list[tuple[str | None, Any]]:
    """The calls in a rendered answer."""
    parser = ToolCallParser(form, {_TOOL: {}}, lambda: "")
    deltas = parser.feed(text)[1] + parser.flush()[1]
    try:
        return [(call.name, msgspec.json.decode(call.arguments)) for call in whole_calls(deltas)]
    except msgspec.DecodeError:
        return []
