"""A model's own chat template -> conversations with tools, and the format in which the model writes its calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tg_base.llm import call_arguments
from tg_llama.chat.name_guard import NameGuard
from tg_llama.chat.template_sandbox import RENDER_SECONDS, SandboxedTemplate, TemplateEndless, TemplateFailed, within
from tg_llama.tools import TOOL_FORMATS, ToolCallParser, ToolFormat
from tg_schema import Message, Tool
from tg_schema.conversation import whole_calls
from tg_schema.errors import BadRequest

_TOOL, _KEY, _VALUE = "probe_tool", "probe_key", "probe value"
_QUESTION, _RESULT, _SYSTEM = "probe question", "probe result", "probe system"
_REFUSED = (
    "messages: this model's chat template cannot express the conversation: let user and assistant take turns, let each "
    "result follow its call, and try one call at a time"
)


@dataclass(frozen=True, slots=True)
class ToolTemplate:
    """A template that renders tools, calls and results; detected by rendering samples when the model is loaded.

    Attributes:
        form: how the model writes calls.
        several: whether an answer may have several calls.
        objects: whether it needs a call's arguments as an object; otherwise as JSON text.
        system: whether it renders the system's text if there are tools.
    """

    form: ToolFormat
    several: bool
    objects: bool
    system: bool
    _template: SandboxedTemplate
    _guard: NameGuard

    @staticmethod
    def of(source: str | None, names: dict[str, str], guard: NameGuard) -> "ToolTemplate | None":
        """The template `source`; None if it does not name tools, or if their calls have none of the known formats.

        Args:
            source: a model's own template; None = it has none.
            names: what it knows besides the conversation, such as `bos_token`.
            guard: the guard of the model's control tokens.
        """
        if source is None:
            return None
        try:
            template = SandboxedTemplate(source, names)
            return within(RENDER_SECONDS, lambda: _examine(template, guard))
        except (TemplateFailed, TemplateEndless):
            return None

    def render(self, system: str, turns: Sequence[Message], tools: Sequence[Tool]) -> str:
        """A conversation up to the answer, with marks of the guard in it.

        Parts of a turn that the template leaves out, such as text beside calls, do not reach the model.

        Raises:
            BadRequest: the template cannot express it, or the arguments of a call are no JSON object.
        """
        called = {call.id: call.name for turn in turns for call in turn.tool_calls}
        numbers = self._numbers(turns, called)
        messages = [self._message(turn, numbers, called) for turn in turns]
        offered = [self._guard.hide(_tool(tool)) for tool in tools]
        messages = self._with_system(self._guard.hide(system), messages, beside_tools=bool(tools))
        try:
            return within(RENDER_SECONDS, lambda: self._template.render(messages, offered))
        except (TemplateFailed, TemplateEndless):
            raise BadRequest(_REFUSED) from None

    def _numbers(self, turns: Sequence[Message], called: dict[str, str]) -> dict[str, str]:
        """The ids of calls as the template takes them."""
        names = dict(called)
        for turn in turns:
            if turn.role == "tool":
                names.setdefault(turn.tool_call_id or "", turn.name or "")
        hidden = [(id_, self._guard.hide(name)) for id_, name in names.items()]
        return {id_: self.form.call_id(number, name) for number, (id_, name) in enumerate(hidden)}

    def _with_system(self, system: str, messages: list[dict[str, Any]], *, beside_tools: bool) -> list[dict[str, Any]]:
        if not system:
            return messages
        if self.system or not beside_tools:
            return [{"role": "system", "content": system}, *messages]
        # The template drops the system's text if there are tools, so put it before the user's first text.
        first = next((at for at, message in enumerate(messages) if message["role"] == "user"), None)
        if first is None:
            raise BadRequest(_REFUSED)
        messages[first] = messages[first] | {"content": f"{system}\n\n{messages[first]['content']}"}
        return messages

    def _message(self, turn: Message, numbers: dict[str, str], called: dict[str, str]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": turn.role, "content": self._guard.hide(turn.text)}
        if turn.tool_calls:
            calls = [(call.id, call.name, call_arguments(call.arguments)) for call in turn.tool_calls]
            hidden = [(numbers[id_], self._guard.hide(name), self._guard.hide(value)) for id_, name, value in calls]
            message["tool_calls"] = [_call(*call, objects=self.objects) for call in hidden]
        if turn.role == "tool":
            message["tool_call_id"] = numbers[turn.tool_call_id or ""]
            message["name"] = self._guard.hide(turn.name or called.get(turn.tool_call_id or "", ""))
        return message


def _tool(tool: Tool) -> dict[str, Any]:
    # Fill in description and properties: templates concatenate the one and iterate over the other.
    parameters = {"type": "object", "properties": {}} | tool.parameters
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _call(number: str, name: str, arguments: dict[str, Any], *, objects: bool) -> dict[str, Any]:
    value: Any = arguments if objects else msgspec.json.encode(arguments).decode()
    return {"id": number, "type": "function", "function": {"name": name, "arguments": value}}


class _Probe:
    """A conversation with a tool, its calls and the result of one."""

    def __init__(self, template: SandboxedTemplate) -> None:
        """Raises: TemplateFailed, if the template does not name the tool."""
        self._template = template
        parameters = {"type": "object", "properties": {_KEY: {"type": "string", "description": "Any."}}}
        self._tools = [_tool(Tool(_TOOL, "It probes.", parameters))]
        self._user = {"role": "user", "content": _QUESTION}
        asked = template.render([self._user], self._tools)
        if _TOOL not in asked:
            raise TemplateFailed
        self._header = _after_question(asked)

    def renders_result(self, form: ToolFormat, calls: int, *, objects: bool) -> bool:
        """Whether a parser of `form` finds all calls in the rendered text, and the text has the result."""
        ids = [form.call_id(number, _TOOL) for number in range(calls)]
        made = [_call(id_, _TOOL, {_KEY: _VALUE}, objects=objects) for id_ in ids]
        result = {"role": "tool", "content": _RESULT, "tool_call_id": ids[0], "name": _TOOL}
        turns: list[dict[str, Any]] = [self._user, {"role": "assistant", "content": "", "tool_calls": made}, result]
        text, rest, _ = _after_question(self._try_render(turns)).partition(_RESULT)
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
        return _SYSTEM in self._try_render([{"role": "system", "content": _SYSTEM}, self._user])

    def _try_render(self, turns: list[dict[str, Any]]) -> str:
        """The conversation; "" if the template refuses it."""
        try:
            return self._template.render(turns, self._tools)
        except TemplateFailed:
            return ""


def _examine(template: SandboxedTemplate, guard: NameGuard) -> ToolTemplate | None:
    """Raises: TemplateFailed, if the template does not name tools."""
    probe = _Probe(template)
    for objects in (True, False):
        form = next((form for form in TOOL_FORMATS if probe.renders_result(form, 1, objects=objects)), None)
        if form is not None:
            several = probe.renders_result(form, 2, objects=objects)
            return ToolTemplate(form, several, objects, probe.renders_system(), template, guard)
    return None


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
