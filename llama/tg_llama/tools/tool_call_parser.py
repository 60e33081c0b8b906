"""A model's text -> the text to show, and the tool calls in it as deltas. It does not matter how the text is split."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tg_llama.grammar import ParameterTypes
from tg_llama.tools.python_call import read_python_call
from tg_llama.tools.tagged_arguments import CallScanner, JsonArguments, TaggedArguments, overlap
from tg_llama.tools.tool_format import ToolFormat
from tg_schema import ToolCallDelta
from tg_schema.codec import decode_json

_SPACE = " \t\r\n"
# Bounded, since an answer may begin like this and never end, and each piece is searched again.
_MAX_NAME_CHARACTERS = 200
_NAME = rf"[\w.\-]{{1,{_MAX_NAME_CHARACTERS}}}\s{{0,20}}"
_MAX_HEAD_CHARACTERS = 512
_BEGINS_NAME = re.compile(f"({_NAME})?")
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError)

State = Callable[[], bool]
"""Reads on; False if it needs more text."""


class _WholeCall(msgspec.Struct, frozen=True):
    name: str = ""
    tool_name: str = ""
    arguments: dict[str, object] | str | None = None
    parameters: dict[str, object] | str | None = None


class ToolCallParser:
    """Reads one answer.

    Arguments are passed on while the model writes them, if the call has its name first; else the call comes whole, as
    do all in Python's form. Text that only resembles a call stays text. White space around calls belongs to them.

    Args:
        form: how the model writes calls.
        tools: the tools that it was offered, each with the schema of its arguments. Without marks, an object is a call
            only if it names one of them.
        new_id: makes the id of each call.

    Attributes:
        begun: the number of calls that have begun.
        ended: the number of those that have their end.
    """

    def __init__(self, form: ToolFormat, tools: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> None:
        self.begun = self.ended = 0
        self._form = form
        self._tools = tools
        self._types: dict[str, ParameterTypes] = {}
        self._new_id = new_id
        self._header = _header(form)
        # Without a mark, only the very beginning of an answer can be a call; later JSON is text.
        self._state: State = self._find if form.begin else self._begin_bare
        self._held = self._raw = self._text = ""
        self._deltas: list[ToolCallDelta] = []
        self._scanner = CallScanner()
        self._arguments_reader: JsonArguments | TaggedArguments = JsonArguments()
        self._scanned = 0
        self._listing = self._after_call = False

    def feed(self, text: str) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """Add text; return what of it is to be shown, and the pieces of calls."""
        self._held += text
        while self._state():
            pass
        return self._take()

    def flush(self) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """The answer ended: return what was held back, unless it is the rest of a call."""
        if self._state in {self._find, self._show}:
            self._put(self._held if self._held.strip(_SPACE) or not self._after_call else "")
        elif self._state in {self._begin_bare, self._open, self._name, self._head, self._to_the_end}:
            self._put(self._raw + self._held)
        self._held, self._state = "", self._show
        return self._take()

    def _take(self) -> tuple[str, tuple[ToolCallDelta, ...]]:
        text, deltas = self._text, tuple(self._deltas)
        self._text, self._deltas = "", []
        return text, deltas

    def _put(self, text: str) -> None:
        text = text.lstrip(_SPACE) if self._after_call else text
        if text:
            self._text += text
            self._after_call = False

    def _show(self) -> bool:
        """No call can come any more."""
        self._put(self._held)
        self._held = ""
        return False

    def _find(self) -> bool:
        """Show what comes before the next mark."""
        begin, held = self._form.begin, self._held
        at = held.find(begin)
        before = held[: at if at >= 0 else len(held) - overlap(held, begin)]
        shown = before.rstrip(_SPACE)
        self._put(shown)
        if at < 0:
            self._held = held[len(shown) :]
            return False
        self._raw, self._held = held[len(shown) : at] + begin, held[at + len(begin) :]
        self._state = self._open
        return True

    def _begin_bare(self) -> bool:
        text = self._held.lstrip(_SPACE)
        if not text:
            return False
        self._state = self._open if text[0] == ("[" if self._form.listed else "{") else self._show
        return True

    def _open(self) -> bool:
        """A mark came: a call, or a list of calls, must follow."""
        text = self._held.lstrip(_SPACE)
        if not text:
            return False
        self._raw += self._held[: len(self._held) - len(text)]
        self._held = text
        if self._form.listed and not self._listing:
            if text[0] != "[":
                return self._no_call("")
            self._listing = True
            self._raw, self._held = self._raw + "[", text[1:]
            return True
        if self._form.item and not text.startswith(self._form.item):
            return False if self._form.item.startswith(text) else self._no_call("")
        self._raw, self._held = self._raw + self._form.item, text[len(self._form.item) :]
        python = self._form.syntax == "python"
        if text[0] != "{" and not self._form.split and not python:
            return self._no_call("")
        self._state, self._scanned = (self._name if python else self._head), 0
        self._scanner = CallScanner(python=python)
        return True

    def _name(self) -> bool:
        """Read a name and a bracket; nothing else is held back, since many answers begin like a list."""
        found = self._header.match(self._held)
        if found is None:
            return False if _BEGINS_NAME.fullmatch(self._held) else self._no_call("")
        if not self._is_offered(found["name"]):
            return self._no_call("")
        self._state = self._to_the_end
        return True

    def _head(self) -> bool:
        """The beginning of a call, up to its arguments; or all of it, if it is in another order."""
        found = self._header.match(self._held, 0, _MAX_HEAD_CHARACTERS)
        if found is not None:
            name = found["name"] if self._form.split else _unquoted(found["name"])
            if name is not None and self._is_offered(name):
                self._call(name, "")
                self._held, self._state = self._held[found.end() :], self._arguments
                self._arguments_reader = self._read_arguments(name)
                return True
        ended = len(self._held) >= _MAX_HEAD_CHARACTERS
        if self._form.split:
            # The name ends at its mark, before the first bracket.
            ended = ended or ("{" if self._form.syntax == "json" else ">") in self._held
            return self._no_call("") if ended else False
        if ended:
            self._state = self._to_the_end
        return self._to_the_end()

    def _read_arguments(self, name: str) -> JsonArguments | TaggedArguments:
        if self._form.syntax == "json":
            return JsonArguments()
        types = self._types.setdefault(name, ParameterTypes(self._tools.get(name, {})))
        return TaggedArguments(types, (self._form.item_end, self._form.end))

    def _to_the_end(self) -> bool:
        """Read a whole call whose parts are in an unusual order."""
        end = self._scanner.find_end(self._held[self._scanned :])
        if end < 0:
            self._scanned = len(self._held)
            return False
        text, self._held = self._held[: self._scanned + end], self._held[self._scanned + end :]
        call = read_python_call(text) if self._form.syntax == "python" else _whole(self._form, text)
        if call is None or not self._is_offered(call[0]):
            return self._no_call(text)
        self._call(*call)
        return self._end_call()

    def _arguments(self) -> bool:
        """Pass on what the model writes, up to the last bracket or tag."""
        piece, rest = self._arguments_reader.read(self._held)
        self._held = rest or ""
        if piece:
            self._deltas.append(ToolCallDelta(self.begun - 1, arguments=piece))
        if rest is None:
            return False
        if self._form.split:
            return self._end_call()
        self._scanner, self._state = CallScanner(depth=1), self._rest
        return True

    def _rest(self) -> bool:
        """Ignore parts of a call after its arguments, such as an id."""
        end = self._scanner.find_end(self._held)
        self._held = "" if end < 0 else self._held[end:]
        return False if end < 0 else self._end_call()

    def _after(self) -> bool:
        """A call ended: another one of a list, or the mark of the end, may follow."""
        text = self._held = self._held.lstrip(_SPACE)
        end = self._form.end
        if not text or (end.startswith(text) and text != end):
            return False
        if text[0] == ("," if self._listing else ";") and (self._listing or not self._form.begin):
            self._held, self._state, self._raw = text[1:], self._open, text[0]
            return True
        if self._listing and text[0] == "]":
            self._held, self._listing = text[1:], False
            return True
        self._listing = False
        self._held = text.removeprefix(end)
        self._state = self._find if self._form.begin else self._show
        return True

    def _after_item(self) -> bool:
        """A call of a section ended: its own end, another one, or the end of the section may follow."""
        text, form = self._held.lstrip(_SPACE), self._form
        item_end = form.item_end.lstrip(_SPACE)
        self._held = text
        if any(mark.startswith(text) and mark != text for mark in (item_end, form.item, form.end)):
            return False
        if text.startswith(item_end):
            self._held = text.removeprefix(item_end)
        elif text.startswith(form.item):
            self._state = self._open
        else:
            self._held, self._state = text.removeprefix(form.end), self._find
        return True

    def _is_offered(self, name: str) -> bool:
        return bool(self._form.begin) or name in self._tools

    def _call(self, name: str, arguments: str) -> None:
        self._deltas.append(ToolCallDelta(self.begun, self._new_id(), name, arguments))
        self.begun += 1
        self._raw = ""

    def _end_call(self) -> bool:
        self.ended += 1
        self._after_call = True
        self._state = self._after_item if self._form.item else self._after
        return True

    def _no_call(self, text: str) -> bool:
        """Treat everything since the mark as text."""
        self._put(self._raw + text)
        self._raw, self._listing = "", False
        self._state = self._find if self._form.begin else self._show
        return True


def _header(form: ToolFormat) -> re.Pattern[str]:
    """A call up to its arguments, with its name in the group of that name."""
    if form.syntax == "python":
        return re.compile(rf"(?P<name>(?={_NAME}\()[\w.\-]+)\s*\(")
    if form.split:
        name = rf'(?P<name>[^\s\[\]{{}}"]{{1,{_MAX_NAME_CHARACTERS}}}?)'
        # A number identifies the call, and is no part of the name; models leave out the parts around the name.
        named = rf"(?:functions\.)?{name}(?::\d+)?" if form.numbered else name
        follows = r"(?=\{)" if form.syntax == "json" else ""
        return re.compile(rf"\s*{named}\s*{re.escape(form.split.strip())}\s*{follows}")
    quoted = r'"(?:[^"\\]|\\.)*"'
    number = rf'(?:"{form.id_key}"\s*:\s*(?:{quoted}|\d+)\s*,\s*)?' if form.id_key else ""
    name = rf'"{form.name_key}"\s*:\s*(?P<name>{quoted})'
    return re.compile(rf'\{{\s*{number}{name}\s*,\s*"{form.arguments_key}"\s*:\s*(?=\{{)')


def _unquoted(text: str) -> str | None:
    try:
        return msgspec.json.decode(text, type=str)
    except _UNREADABLE:
        return None


def _whole(form: ToolFormat, text: str) -> tuple[str, str] | None:
    """The name and the arguments of a whole call; None if it is none."""
    try:
        call = decode_json(text, _WholeCall)
        name: str = getattr(call, form.name_key)
        if not name:
            return None
        arguments = call.parameters if call.arguments is None else call.arguments
        if isinstance(arguments, str):
            decode_json(arguments, dict[str, object])
            return name, arguments
        return name, msgspec.json.encode(arguments or {}).decode()
    except _UNREADABLE:
        return None
