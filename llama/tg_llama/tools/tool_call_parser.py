"""A model's text -> the text to show, and the tool calls in it as deltas. The text may arrive in pieces of any size."""

import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import msgspec

from tg_llama.grammar import ParameterTypes
from tg_llama.tools.python_call import read_python_call
from tg_llama.tools.tagged_arguments import JsonArguments, TaggedArguments, overlap
from tg_llama.tools.tool_format import ToolFormat
from tg_schema import ToolCallDelta
from tg_schema.codec import decode_json
from tg_schema.object_end import ObjectEnd

_SPACE = " \t\r\n"
# The length is bounded: an answer may begin like this and never end, and the pattern is tried again with each piece.
_MAX_NAME_CHARACTERS = 200
_NAME = rf"[\w.\-]{{1,{_MAX_NAME_CHARACTERS}}}\s{{0,20}}"
_MAX_HEAD_CHARACTERS = 512
_BEGINS_NAME = re.compile(f"({_NAME})?")
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError)

T = TypeVar("T")
Reading = Generator[None, None, T]
"""A step of the parser; it yields when it needs more text."""


class _NoCall(Exception):
    """The text since the mark is not a call."""


class _WholeCall(msgspec.Struct, frozen=True):
    name: str = ""
    tool_name: str = ""
    arguments: dict[str, object] | str | None = None
    parameters: dict[str, object] | str | None = None


class ToolCallParser:
    """Reads one answer.

    If a call's name comes first, its arguments are passed on while the model writes them. Otherwise, and always in
    Python's form, the call comes as a whole. Text that only resembles a call stays text. White space around calls is
    dropped.

    Args:
        form: how the model writes calls.
        tools: the offered tools, each with the schema of its arguments. Without marks, an object is a call only if it
            names one of them.
        new_id: makes the id of each call.

    Attributes:
        begun: the number of calls that have begun.
        ended: the number of calls that have ended.
    """

    def __init__(self, form: ToolFormat, tools: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> None:
        self.begun = self.ended = 0
        self._form = form
        self._tools = tools
        self._types: dict[str, ParameterTypes] = {}
        self._new_id = new_id
        self._header = _header(form)
        # `_held` is not read yet. `_raw` was read since the mark, and becomes text if no call follows.
        self._held = self._raw = ""
        self._in_call = self._after_call = False
        self._text = ""
        self._deltas: list[ToolCallDelta] = []
        self._reading = self._read()

    def feed(self, text: str) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """Add text. Returns the part of it to show, and the pieces of calls."""
        self._held += text
        next(self._reading)
        return self._take()

    def flush(self) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """End the answer. Returns the text that was held back, unless it is the rest of a call."""
        self._put("" if self._in_call else self._raw + self._held)
        self._held = self._raw = ""
        self._reading = self._show()
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

    def _read(self) -> Reading[None]:
        while self._form.begin:
            yield from self._find()
            yield from self._calls()
        # Without marks, only the beginning of an answer can be a call; JSON that comes later is text.
        yield from self._calls()
        yield from self._show()

    def _show(self) -> Reading[None]:
        """Show everything that follows, because no further call can come."""
        while True:
            self._put(self._held)
            self._held = ""
            yield

    def _find(self) -> Reading[None]:
        """Show the text before the next mark, and read the mark."""
        begin = self._form.begin
        while not (yield from self._follows(begin)):
            at = self._held.find(begin)
            before = self._held[: at if at >= 0 else len(self._held) - overlap(self._held, begin)]
            shown = before.rstrip(_SPACE)
            self._put(shown)
            self._held = self._held[len(shown) :]

    def _follows(self, mark: str) -> Reading[bool]:
        """Read `mark` and the white space before it. Returns False if something else comes."""
        while (text := self._held.lstrip(_SPACE)) != mark and mark.startswith(text):
            yield
        if not text.startswith(mark):
            return False
        end = len(self._held) - len(text) + len(mark)
        self._raw, self._held = self._raw + self._held[:end], self._held[end:]
        return True

    def _calls(self) -> Reading[None]:
        """Read what follows a mark: calls, or text that only resembles them."""
        try:
            yield from self._section()
            while not self._form.begin and (yield from self._continues(";")):
                yield from self._section()
        except _NoCall:
            self._put(self._raw)
        self._raw, self._in_call = "", False

    def _section(self) -> Reading[None]:
        """Read one call, or several in a list or between marks, and the closing mark."""
        form = self._form
        if not (yield from self._follows("[" if form.listed else form.item)):
            raise _NoCall
        yield from self._call()
        while (form.listed or form.item) and (yield from self._continues(form.item or ",")):
            yield from self._call()
        if form.listed:
            yield from self._follows("]")
        yield from self._follows(form.end)

    def _continues(self, mark: str) -> Reading[bool]:
        """Read the mark before a further call. Until that call begins, the mark may turn out to be text."""
        follows = yield from self._follows(mark)
        if follows:
            self._raw, self._in_call = mark, False
        return follows

    def _call(self) -> Reading[None]:
        """Read a call piece by piece if its name comes first, otherwise as a whole."""
        form = self._form
        while not self._held.strip(_SPACE):
            yield
        yield from self._follows("")
        if form.syntax == "python":
            yield from self._name()
        elif not form.split and self._held[0] != "{":
            raise _NoCall
        whole, scanned = ObjectEnd(python=form.syntax == "python"), 0
        while scanned >= _MAX_HEAD_CHARACTERS or (name := self._head()) is None:
            end = -1 if form.split else whole.feed(self._held[scanned:])
            if end >= 0:
                self._whole(scanned + end)
                break
            scanned = len(self._held)
            yield
        else:
            yield from self._arguments(name)
        self.ended += 1
        self._after_call = True
        while form.item_end and (yield from self._follows(form.item_end.lstrip(_SPACE))):
            pass

    def _name(self) -> Reading[None]:
        """Wait for a name and a bracket. Hold back nothing else, since many answers begin like a list."""
        while (found := self._header.match(self._held)) is None:
            if not _BEGINS_NAME.fullmatch(self._held):
                raise _NoCall
            yield
        if not self._is_offered(found["name"]):
            raise _NoCall

    def _head(self) -> str | None:
        """Read the beginning of a call, up to its arguments. Returns None if it does not begin so."""
        found = None if self._form.syntax == "python" else self._header.match(self._held, 0, _MAX_HEAD_CHARACTERS)
        name = found and (found["name"] if self._form.split else _unquoted(found["name"]))
        if found is not None and name is not None and self._is_offered(name):
            self._held = self._held[found.end() :]
            self._begin(name, "")
            return name
        # A bare name must end at its mark, before the first bracket.
        bracket = "{" if self._form.syntax == "json" else ">"
        if self._form.split and (len(self._held) >= _MAX_HEAD_CHARACTERS or bracket in self._held):
            raise _NoCall
        return None

    def _whole(self, end: int) -> None:
        text, self._held = self._held[:end], self._held[end:]
        call = read_python_call(text) if self._form.syntax == "python" else _whole(self._form, text)
        if call is None or not self._is_offered(call[0]):
            self._raw += text
            raise _NoCall
        self._begin(*call)

    def _arguments(self, name: str) -> Reading[None]:
        """Pass on the arguments while the model writes them, up to the last bracket or tag."""
        reader, rest = self._reader(name), None
        while rest is None:
            piece, rest = reader.read(self._held)
            self._held = rest or ""
            if piece:
                self._deltas.append(ToolCallDelta(self.begun - 1, arguments=piece))
            if rest is None:
                yield
        if self._form.split:
            return
        # Ignore fields of a call that follow its arguments, such as an id.
        rest_of_call = ObjectEnd(depth=1)
        while (end := rest_of_call.feed(self._held)) < 0:
            self._held = ""
            yield
        self._held = self._held[end:]

    def _reader(self, name: str) -> JsonArguments | TaggedArguments:
        if self._form.syntax == "json":
            return JsonArguments()
        types = self._types.setdefault(name, ParameterTypes(self._tools.get(name, {})))
        return TaggedArguments(types, (self._form.item_end, self._form.end))

    def _is_offered(self, name: str) -> bool:
        return bool(self._form.begin) or name in self._tools

    def _begin(self, name: str, arguments: str) -> None:
        self._deltas.append(ToolCallDelta(self.begun, self._new_id(), name, arguments))
        self.begun += 1
        self._in_call = True


def _header(form: ToolFormat) -> re.Pattern[str]:
    """The pattern of a call up to its arguments; the group `name` is its name."""
    if form.syntax == "python":
        return re.compile(rf"(?P<name>(?={_NAME}\()[\w.\-]+)\s*\(")
    if form.split:
        name = rf'(?P<name>[^\s\[\]{{}}"]{{1,{_MAX_NAME_CHARACTERS}}}?)'
        # The number identifies the call and is not part of the name. Models may leave out what surrounds the name.
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
    """The name and the arguments of a complete call; None if the text is not one."""
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
