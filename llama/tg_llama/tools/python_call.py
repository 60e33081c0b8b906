"""A call in Python's syntax, `name(key=value, ...)` with literals as values -> its name, and its arguments as JSON."""

import math
import re
from typing import Final

import msgspec

from tg_schema.codec import decode_json

_HEAD = re.compile(r"\s*([\w.\-]+)\s*\(")
_KEY = re.compile(r"\s*([^\s\"'=,(){}\[\]]+)\s*=(?!=)")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
    r"""|(?P<number>(?:[+-]\s*)?\.?\d(?:[eE][+-]|[\w.])*)|(?P<word>[A-Za-z]+)|(?P<sign>[\[\](){},:]))""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": ""}
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_CLOSING: Final = {"[": "]", "{": "}", "(": ")"}
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeError, ValueError, OverflowError)


def read_python_call(text: str) -> tuple[str, str] | None:
    """The name and the arguments of a complete call; None if the text is not one.

    Arguments must be named, and literals: texts, numbers, lists, tuples, dictionaries with texts as keys, and the
    constants of Python or JSON. Other expressions make it no call. Reading takes microseconds for each value.
    """
    head = _HEAD.match(text)
    if head is None:
        return None
    try:
        arguments = _Translation(text, head.end()).arguments()
        decode_json(arguments, dict[str, object])
    except _UNREADABLE:
        return None
    return head[1], arguments


class _Translation:
    """The text of a call's arguments, after the opening bracket, as JSON. Raises ValueError if it has no such form."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at
        self._out: list[str] = []
        # For each open bracket: its sign, its position in the output, and whether it has a comma.
        self._open: list[tuple[str, int, bool]] = []
        self._complete = False

    def arguments(self) -> str:
        self._out.append("{")
        while not self._closes():
            key = _KEY.match(self._text, self._at)
            if key is None:
                raise ValueError("an argument without a name")
            self._at = key.end()
            self._out.append(f"{write_json(key[1])}: ")
            self._value()
        return "".join([*self._out, "}"])

    def _closes(self) -> bool:
        """Whether the call ends here. A comma before the closing bracket is ignored."""
        found = re.compile(r"\s*\)\s*").fullmatch(self._text, self._at)
        if found and self._out[-1] == ", ":
            self._out.pop()
        return found is not None

    def _value(self) -> None:
        """Read one value, and the comma after it if there is one."""
        while True:
            token = _TOKEN.match(self._text, self._at)
            if token is None:
                raise ValueError("no literal")
            sign = token["sign"]
            ends = not self._open and sign in {",", ")"}
            begins = sign is None or sign in _CLOSING
            if self._complete == begins and not (sign in {"]", "}", ")"} and self._out[-1] in {"[", "{", ", "}):
                raise ValueError("two values without a comma, or none")
            if not (ends and sign == ")"):
                self._at = token.end()
                self._out.append(_literal(token) if sign is None else self._bracket(sign))
            self._complete = (sign is None or sign in {"]", "}", ")"}) and not ends
            if ends:
                return

    def _bracket(self, sign: str) -> str:
        if sign in _CLOSING:
            self._open.append((sign, len(self._out), False))
            return "{" if sign == "{" else "["
        if sign == ":":
            return ": "
        if not self._open:
            return ", "
        opened, at, comma = self._open.pop()
        if sign == ",":
            self._open.append((opened, at, True))
            return ", "
        if _CLOSING[opened] != sign:
            raise ValueError("brackets")
        if self._out[-1] == ", ":
            self._out.pop()
        if opened == "(" and not comma and at + 1 < len(self._out):
            # Brackets around a single value without a comma are not a tuple.
            self._out[at] = ""
            return ""
        return "}" if sign == "}" else "]"


def _literal(token: re.Match[str]) -> str:
    if token["text"]:
        size = 3 if token["text"][:3] in {"'''", '"""'} else 1
        return write_json(_unescape(token["text"][size:-size]))
    if token["number"]:
        return _number("".join(token["number"].split()))
    if token["word"] not in _WORDS:
        raise ValueError("a name")
    return _WORDS[token["word"]]


def _number(text: str) -> str:
    try:
        return str(int(text, 0))
    except ValueError:
        value = float(text)
    if not math.isfinite(value):
        raise ValueError("no number of JSON")
    return repr(value)


def _unescape(text: str) -> str:
    plain = _ESCAPE.sub(_escaped, text)
    # JSON writes a character beyond 16 bits as two escapes.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16") if "\\u" in text else plain


def _escaped(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) > 1 and code[0] in "xuU":
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    # Python keeps the backslash of unknown escapes; JSON also has \/.
    return _ESCAPED.get(code, code if code in "\\'\"/" else f"\\{code}")


def write_json(text: str) -> str:
    """A text as JSON has it."""
    return msgspec.json.encode(text).decode()
