"""Arguments between tags -> JSON text, while the model writes them: one `<parameter=KEY>VALUE</parameter>` for each."""

import re
from typing import Final

import msgspec

from tg_llama.grammar import ParameterTypes, fits
from tg_llama.tools.python_call import write_json
from tg_schema.codec import decode_json
from tg_schema.object_end import ObjectEnd


class JsonArguments:
    """Reads the arguments of one call that are already one JSON value, and passes their text on unchanged."""

    def __init__(self) -> None:
        self._end = ObjectEnd()

    def read(self, text: str) -> tuple[str, str | None]:
        """Add text. Returns the JSON text that it adds, and the text after the arguments, or None while they go on."""
        end = self._end.feed(text)
        return (text, None) if end < 0 else (text[:end], text[end:])


def overlap(text: str, mark: str) -> int:
    """The length of the longest end of `text` that is a beginning of `mark`."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)


OPEN: Final = "<parameter="
CLOSE: Final = "</parameter>"
MAX_KEY_CHARACTERS: Final = 200

_STRING: Final = frozenset({"string"})
# Templates may write JSON's constants as Python does, and models imitate their template.
_WORDS: Final = {"True": "true", "False": "false", "None": "null"}


class TaggedArguments:
    """Reads the arguments of one call that are written between tags.

    The number 5 and the string "5" look the same in a tag, so the tool's schema decides a value's type. A value whose
    schema allows only strings is passed on while it is written; other values must be complete first. One line feed
    after the opening tag, and one before the closing tag, do not belong to the value. A value ends at the first closing
    tag. If a parameter is repeated, the first value counts.

    Args:
        types: the types of the tool's arguments.
        ends: tags; the first of them that comes ends the arguments. It is not read.
    """

    def __init__(self, types: ParameterTypes, ends: tuple[str, ...]) -> None:
        self._known = types
        self._tags = (OPEN, *ends)
        self._next = re.compile(
            rf"{OPEN}(?P<key>[^<>\n]{{1,{MAX_KEY_CHARACTERS}}})>|(?={'|'.join(map(re.escape, ends))})"
        )
        self._held = ""
        self._written = "{"
        self._separator = ""
        self._searched = 0
        self._in_value = self._leads = self._repeated = False
        self._keys: set[str] = set()
        self._types: frozenset[str] = frozenset()

    def read(self, text: str) -> tuple[str, str | None]:
        """Add text. Returns the JSON text that it adds, and the text after the arguments, or None while they go on."""
        self._held += text
        ended = False
        while not ended and (self._value() if self._in_value else self._key()):
            ended = not self._in_value and self._next.match(self._held) is not None and not self._held.startswith(OPEN)
        written, self._written = self._written, ""
        return (f"{written}}}", self._held) if ended else (written, None)

    def _key(self) -> bool:
        """Read up to the next value, or to the end of the arguments. Returns False if more text is needed."""
        found = self._next.search(self._held)
        if found is None:
            # Ignore text between tags, but keep its end if a tag may have begun there.
            at = self._held.rfind("<")
            begun = self._held[at:] if at >= 0 else ""
            # The key is searched again with each piece, so its length is limited.
            begins = len(begun) <= len(OPEN) + MAX_KEY_CHARACTERS and any(
                tag.startswith(begun) or begun.startswith(tag) for tag in self._tags
            )
            self._held = begun if begins else ""
            return False
        self._held = self._held[found.end() :]
        if found["key"] is not None:
            self._repeated = found["key"] in self._keys
            self._keys.add(found["key"])
            # The value of a repeated parameter is dropped, so it need not be complete, whatever its type.
            self._types = _STRING if self._repeated else self._known.of_property(found["key"])
            quote = '"' if self._types == _STRING else ""
            self._write(f"{self._separator}{write_json(found['key'])}: {quote}")
            self._separator, self._in_value, self._leads, self._searched = ", ", True, True, 0
        return True

    def _value(self) -> bool:
        """Continue to read a value. Returns False if more text is needed."""
        if self._leads and self._held:
            self._leads, self._held = False, self._held.removeprefix("\n")
        end = self._held.find(CLOSE, max(self._searched - len(CLOSE), 0))
        self._searched = len(self._held)
        streams = self._types == _STRING
        if end >= 0:
            value, self._held = self._held[:end].removesuffix("\n"), self._held[end + len(CLOSE) :]
            self._write(write_json(value)[1:] if streams else _value_of(value, self._types))
            self._in_value = False
        elif streams:
            cut = len(self._held) - (overlap(self._held, f"\n{CLOSE}") or overlap(self._held, CLOSE))
            self._write(write_json(self._held[:cut])[1:-1])
            self._held, self._searched = self._held[cut:], 0
        return end >= 0

    def _write(self, text: str) -> None:
        if not self._repeated:
            self._written += text


def _value_of(text: str, types: frozenset[str]) -> str:
    """The JSON text of a value that may have any of these types."""
    word = text.strip()
    word = _WORDS.get(word, word)
    try:
        value: object = decode_json(word)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return write_json(text)
    fitting = any(fits(value, kind) for kind in types - _STRING)
    return word if fitting or "string" not in types else write_json(text)
