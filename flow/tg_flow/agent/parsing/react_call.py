"""Model's text -> parser: one call, from the name after `Action:` to the end of its arguments."""

import json
import re
from typing import Any, NamedTuple, NoReturn

import msgspec

from tg_flow.agent.parsing.events import InvalidCall, ParsedCall
from tg_flow.agent.parsing.react_fences import fence_at, inside
from tg_flow.agent.parsing.react_markers import UNDECIDED, Marker, Undecided, marker_at
from tg_schema.codec import decode_json, is_too_deep
from tg_schema.object_end import ObjectEnd

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[`\"'\[*]{0,2}([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?[`\"'\]*]{0,2}[ \t\r]*")
_FENCE = re.compile(r"```[A-Za-z]*\s*")
_MARK = "```"
_NOTHING = frozenset({"none", "null", "n/a", "nothing", "-", "()"})
_TOOLS = ("tool", "name", "action", "function")
_ARGUMENTS = ("arguments", "args", "input", "action_input", "parameters")
_CUT = "the arguments end in the middle; write one complete JSON object"
_NO_OBJECT = "the arguments are not a JSON object; write one, with double quotes"
_NO_NAME = 'the call names no tool; write its name, or {"tool": NAME, "arguments": {...}}'


class ReadCall(NamedTuple):
    """The index after the call, and the call; None = the model says that it calls nothing."""

    end: int
    event: ParsedCall | InvalidCall | None


class ReactCall:
    """A call whose tool's name has been read, if it has one; "" = the object names the tool."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._object: int | None = None
        self._fenced = False
        self._object_end = ObjectEnd()

    @property
    def empty(self) -> bool:
        """Whether the model calls nothing: models then write `Action: none`."""
        return self._tool.casefold() in _NOTHING

    def read(self, text: str, start: int, *, final: bool) -> ReadCall | None:
        """The call if it is complete, else None. `start` is where the arguments begin; `text` only grows."""
        if self._object is None:
            found = self._find_object(text, start, final=final)
            if not isinstance(found, int):
                return found
            self._object = found - start
        begin = start + self._object
        self._object_end.feed(text[begin + self._object_end.size :])
        if not self._object_end.reached:
            return ReadCall(len(text), InvalidCall(_CUT, self._tool or None, text[begin:])) if final else None
        end = begin + self._object_end.size
        behind = self._behind_fence(text, end, final=final)
        return None if behind is None else ReadCall(behind, self._event(text[begin:end]))

    def _find_object(self, text: str, start: int, *, final: bool) -> int | ReadCall | None:
        """The start of the object, or a call without an object; None = not known yet."""
        at, labelled = start, False
        while True:
            here = _after_space(text, at)
            if here == len(text):
                return ReadCall(here, self._make_call("{}")) if final else None
            fence = _behind_fence(text, here, final=final)
            if isinstance(fence, Undecided):
                return None
            if text.startswith("{", here if fence is None else fence):
                self._fenced = fence is not None
                return here if fence is None else fence
            marker = marker_at(text, here) if not labelled or "\n" in text[at:here] else None
            if marker == UNDECIDED and not final:
                return None
            if isinstance(marker, Marker) and marker.section == "input" and not labelled:
                at, labelled = marker.end, True
                continue
            bare = labelled and not isinstance(marker, Marker)
            return self._bare(text, here, final=final) if bare else ReadCall(here, self._make_call("{}"))

    def _bare(self, text: str, start: int, *, final: bool) -> ReadCall | None:
        """A call whose arguments are a whole line instead of an object, unless the line is a fence."""
        fence = fence_at(text, start, final=final)
        if isinstance(fence, Undecided):
            return None
        if fence is not None and (structure := inside(text, fence, final=final)) is not None:
            return None if isinstance(structure, Undecided) else ReadCall(start, self._make_call("{}"))
        end = text.find("\n", start)
        if end < 0 and not final:
            return None
        end = len(text) if end < 0 else end
        value = text[start:end].strip()
        nothing = value.casefold() in _NOTHING
        return ReadCall(end, self._make_call("{}") if nothing else InvalidCall(_NO_OBJECT, self._tool or None, value))

    def _behind_fence(self, text: str, end: int, *, final: bool) -> int | None:
        if not self._fenced:
            return end
        at = _after_space(text, end)
        if text.startswith(_MARK, at):
            return at + len(_MARK)
        return None if not final and _MARK.startswith(text[at : at + 3]) else end

    def _make_call(self, arguments: str) -> ParsedCall | None:
        return None if self.empty else ParsedCall(self._tool, arguments)

    def _event(self, text: str) -> ParsedCall | InvalidCall | None:
        value = object_of(text)
        if value is None:
            return InvalidCall(_NO_OBJECT, self._tool or None, text)
        if self._tool:
            return self._make_call(_encode(value))
        tool = next((value[key] for key in _TOOLS if isinstance(value.get(key), str) and value[key]), None)
        arguments: Any = next((value[key] for key in _ARGUMENTS if value.get(key) is not None), {})
        if isinstance(arguments, str):
            arguments = object_of(arguments)
        if tool is None or not isinstance(arguments, dict):
            return InvalidCall(_NO_NAME if tool is None else _NO_OBJECT, tool, text)
        return ParsedCall(tool, _encode(arguments))


def call_at(text: str, start: int, *, final: bool) -> tuple[ReactCall, int] | Undecided | None:
    """The call whose name begins at `start`, after `Action:`, and where to continue; None = this is ordinary text."""
    at = _after_space(text, start)
    if at == len(text):
        return None if final else UNDECIDED
    fence = _behind_fence(text, at, final=final)
    if isinstance(fence, Undecided):
        return UNDECIDED
    if text[at] == "{" or fence is not None:
        return (ReactCall(""), at) if fence is None or text.startswith("{", fence) else None
    name = _NAME.match(text, at)
    if name is None or (name.end() == len(text) and not final):
        return UNDECIDED
    if name[1] is None or text[name.end() : name.end() + 1] not in {"", "\n", "{"}:
        return None
    return ReactCall(name[1]), name.end()


def _after_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return start if found is None else found.end()


def _behind_fence(text: str, start: int, *, final: bool) -> int | Undecided | None:
    """The index after the code fence at `start`, with its language and line break; None = there is no fence."""
    fence = _FENCE.match(text, start)
    if fence is None:
        return UNDECIDED if not final and _MARK.startswith(text[start : start + 3]) else None
    return UNDECIDED if fence.end() == len(text) and not final else fence.end()


def _encode(value: dict[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


def object_of(text: str) -> dict[str, Any] | None:
    """The object; None if the text is not one. Line breaks inside strings are accepted, because models write them."""
    try:
        return decode_json(text, dict[str, Any])
    except RecursionError:
        return None
    except (msgspec.MsgspecError, UnicodeError):
        pass
    try:
        # Refuse `NaN` and `Infinity`: no other JSON reader accepts them, so the arguments could not be passed on.
        value = json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return None if is_too_deep(text) or not isinstance(value, dict) else value


def _refuse(_: str) -> NoReturn:
    raise ValueError
