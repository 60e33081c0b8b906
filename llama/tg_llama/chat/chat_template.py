"""A conversation -> its text by the model's own chat template, as pieces of the template's and of the request's text.

A template is a program from an untrusted file. It runs in a sandbox and within a time limit. Without tools, the
conversation's texts never pass through the template: it renders placeholders, which are replaced afterwards.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

from tg_base.llm import call_arguments
from tg_llama.chat.name_guard import NameGuard, Plain
from tg_llama.chat.template_sandbox import (
    RENDER_SECONDS,
    SandboxedTemplate,
    TemplateEndless,
    TemplateFailed,
    within,
)
from tg_llama.chat.tool_template import ToolTemplate, examine_tools, write_call, write_tool
from tg_schema import Message, Tool
from tg_schema.errors import BadRequest, Unavailable
from tg_schema.features import describe_missing

_CONTINUED = "{{ messages[0].content }}"
"""The template of a model that has none and simply continues the text."""
_EDGE = "\u2003"
"""White space that no template writes, on both sides of a placeholder. If it is missing, the template trims texts."""
_MARK = re.compile(f"({_EDGE}?)\ue000([0-9]+)\ue001({_EDGE}?)")
_SYSTEM, _QUESTION, _ANSWER = "probe system", "probe question", "probe answer"
_TURNS = (_QUESTION, _ANSWER, _QUESTION, _ANSWER, _QUESTION)
_REFUSED = (
    "messages: this model's chat template cannot express the conversation: let user and assistant take turns, let each "
    "result follow its call, and try one call at a time"
)


class ChatTemplate:
    """One model's template. When the model is loaded, samples are rendered to see what the template supports.

    Args:
        source: the template's text; None = the model has none and continues the text.
        names: the variables of the template besides the conversation, such as `bos_token`.
        guard: the guard of the model's control tokens.
        seconds: time limit of the samples.

    Attributes:
        knows_history: whether a conversation can have more than one turn.
        tools: how it renders tools, calls and results; None if it cannot, or writes calls in no known format.

    Raises:
        Unavailable: the template does not work; the message says why.
    """

    def __init__(
        self, source: str | None, names: dict[str, str], guard: NameGuard, seconds: float = RENDER_SECONDS
    ) -> None:
        self._guard = guard
        try:
            within(seconds, lambda: self._examine(SandboxedTemplate(source or _CONTINUED, names)))
        except TemplateEndless:
            raise Unavailable(
                "the model file's chat template does not come to an end; use another model file"
            ) from None
        except TemplateFailed:
            raise Unavailable(
                "the model file's chat template cannot be rendered; use an instruction-tuned model file"
            ) from None

    def _examine(self, template: SandboxedTemplate) -> None:
        """Raises: TemplateFailed, if the template cannot be rendered."""
        self._template = template
        if _QUESTION not in template.render(_make_turns([_QUESTION])):
            raise TemplateFailed
        with_system = template.try_render(_add_system(_make_turns([_QUESTION]), _SYSTEM, known=True))
        # A template without a system role may ignore the system text, or fail.
        self._knows_system = _SYSTEM in with_system and _QUESTION in with_system
        conversation = template.try_render(_make_turns(_TURNS))
        self.knows_history = tuple(re.findall(f"{_QUESTION}|{_ANSWER}", conversation)) == _TURNS
        self.tools: ToolTemplate | None = examine_tools(template)

    def render(self, system: str, texts: Sequence[str]) -> Iterator[str | Plain]:
        """The pieces of a conversation up to the answer. Its texts alternate; the first and the last are the user's.

        If the template has no system role, the system text is put before the user's first text.

        Raises:
            BadRequest: the template cannot express it.
        """
        marks = [f"{_EDGE}\ue000{number}\ue001{_EDGE}" for number in range(len(texts) + 1)]
        messages = _make_turns(marks[1:])
        if system:
            messages = _add_system(messages, marks[0], known=self._knows_system)
        rendered = self._render(messages)
        expected = map(str, range(0 if system else 1, len(marks)))
        # In conversations longer than the samples, a template may drop the system text or the first turns.
        if sorted(found[2] for found in _MARK.finditer(rendered)) != sorted(expected):
            raise BadRequest(_REFUSED)
        return _fill(rendered, [system, *texts])

    def render_tools(self, system: str, turns: Sequence[Message], tools: Sequence[Tool]) -> Iterator[str | Plain]:
        """The pieces of a conversation with tools, calls or results, up to the answer.

        The model does not see parts of a turn that the template leaves out, such as text beside calls.

        Raises:
            BadRequest: the template cannot express it, or the arguments of a call are no JSON object.
        """
        how = self.tools
        if how is None:
            raise BadRequest(describe_missing(("tools",)))
        called = {call.id: call.name for turn in turns for call in turn.tool_calls}
        numbers = self._number(how, turns, called)
        messages = [self._message(how, turn, numbers, called) for turn in turns]
        if system:
            known = how.system if tools else self._knows_system
            messages = _add_system(messages, self._guard.hide(system), known=known)
        return self._guard.reveal(self._render(messages, [self._guard.hide(write_tool(tool)) for tool in tools]))

    def _render(self, messages: list[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> str:
        try:
            return within(RENDER_SECONDS, lambda: self._template.render(messages, tools))
        except (TemplateFailed, TemplateEndless):
            raise BadRequest(_REFUSED) from None

    def _number(self, how: ToolTemplate, turns: Sequence[Message], called: Mapping[str, str]) -> dict[str, str]:
        """Each call's id -> the id in the form that the template wants."""
        names = dict(called)
        for turn in turns:
            if turn.role == "tool":
                names.setdefault(turn.tool_call_id or "", turn.name or "")
        hidden = [(id_, self._guard.hide(name)) for id_, name in names.items()]
        return {id_: how.form.call_id(number, name) for number, (id_, name) in enumerate(hidden)}

    def _message(
        self, how: ToolTemplate, turn: Message, numbers: Mapping[str, str], called: Mapping[str, str]
    ) -> dict[str, Any]:
        message: dict[str, Any] = {"role": turn.role, "content": self._guard.hide(turn.text)}
        if turn.tool_calls:
            calls = [(call.id, call.name, call_arguments(call.arguments)) for call in turn.tool_calls]
            hidden = [(numbers[id_], self._guard.hide(name), self._guard.hide(value)) for id_, name, value in calls]
            message["tool_calls"] = [write_call(*call, objects=how.objects) for call in hidden]
        if turn.role == "tool":
            message["tool_call_id"] = numbers[turn.tool_call_id or ""]
            message["name"] = self._guard.hide(turn.name or called.get(turn.tool_call_id or "", ""))
        return message


def _make_turns(texts: Sequence[str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in zip(cycle(("user", "assistant")), texts, strict=False)]


def _add_system(messages: list[dict[str, Any]], system: str, *, known: bool) -> list[dict[str, Any]]:
    """The messages with a system text. If the template has no system role, it is put before the user's first text."""
    if known:
        return [{"role": "system", "content": system}, *messages]
    first = next((at for at, message in enumerate(messages) if message["role"] == "user"), None)
    if first is None:
        raise BadRequest(_REFUSED)
    messages[first] = messages[first] | {"content": f"{system}\n\n{messages[first]['content']}"}
    return messages


def _fill(rendered: str, texts: Sequence[str]) -> Iterator[str | Plain]:
    """A rendered text with the request's texts in place of the placeholders."""
    at = 0
    for found in _MARK.finditer(rendered):
        yield rendered[at : found.start()]
        at, text = found.end(), texts[int(found[2])]
        yield Plain(text if found[1] and found[3] else text.strip())
    yield rendered[at:]
