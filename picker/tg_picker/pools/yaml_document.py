"""YAML text -> plain values with the position of each key. Only this file imports PyYAML, which is optional."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from tg_base.config import Keys
from tg_schema.errors import BadRequest

MAX_DEPTH = 64
"""Maximum nesting of lists and mappings."""

# Use the parser written in C if PyYAML has it. Use only its events: its composer overflows the stack at deep nesting.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,300}|[0-9]{1,300}(\.[0-9]{0,300})?)([eE][-+]?[0-9]{1,3})?")


class YamlDocument(Struct, frozen=True):
    """One document of a file.

    Attributes:
        file: the file's path, for errors.
        data: the content, in JSON's types.
        places: by path, PyYAML's position of each key and of each element of a list.
    """

    file: Path
    data: Any
    places: dict[Keys, Any]

    def fault(self, sentence: str, *keys: str) -> BadRequest:
        """The error about a value: `FILE, line N, column M: sentence`."""
        while keys and keys not in self.places:
            keys = keys[:-1]
        return _make_error(self.file, self.places[keys], sentence).at(*keys)


def parse_yaml(text: str, file: Path) -> tuple[YamlDocument, ...]:
    """The documents of a file, without empty ones.

    Scalars are read by YAML 1.2's core schema, except hexadecimal and octal numbers: `yes`, `1:30` and dates are text,
    as in JSON.

    Raises:
        BadRequest: it is not YAML, repeats a key, has a key that is not text, or uses tags or aliases.
    """
    try:
        parser = _Parser(text, file)
        documents = tuple(parser.read_documents())
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark or error.context_mark, error.problem or error.context
        raise _make_error(file, mark, f"not valid YAML: {problem}") from None
    except yaml.YAMLError:
        raise BadRequest(f"{file}: not valid YAML: a character that YAML does not allow; remove it") from None
    return tuple(document for document in documents if document.data is not None)


def _make_error(file: Path, mark: Any, sentence: str) -> BadRequest:
    where = f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return BadRequest(f"{file}{where}: {sentence}")


class _Parser:
    """Events of PyYAML's parser -> values."""

    def __init__(self, text: str, file: Path) -> None:
        self._file = file
        self._events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
        self._places: dict[Keys, Any] = {}

    def read_documents(self) -> Iterator[YamlDocument]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._places = {}
                data = self._read(next(self._events), ())
                yield YamlDocument(self._file, data, self._places)

    def _read(self, event: Any, keys: Keys) -> Any:
        self._check(event, keys)
        self._places.setdefault(keys, event.start_mark)
        if isinstance(event, yaml.ScalarEvent):
            return _resolve(event.value) if event.implicit[0] else event.value
        if isinstance(event, yaml.SequenceStartEvent):
            return self._read_elements(keys)
        return self._read_mapping(keys)

    def _check(self, event: Any, keys: Keys) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise _make_error(self._file, event.start_mark, "an alias; write the value out")
        if event.tag is not None and event.tag != "!":
            raise _make_error(self._file, event.start_mark, f"the tag {event.tag}; remove it, plain values need none")
        if len(keys) > MAX_DEPTH:
            raise _make_error(self._file, event.start_mark, "lists or mappings are nested too deep")

    def _read_elements(self, keys: Keys) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            found.append(self._read(event, (*keys, str(len(found)))))
        return found

    def _read_mapping(self, keys: Keys) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _make_error(self._file, event.start_mark, "a key that is no text; name a field")
            path = (*keys, event.value)
            if event.value in found:
                sentence = f'"{event.value}" is repeated, first in line {self._places[path].line + 1}; keep one'
                raise _make_error(self._file, event.start_mark, sentence)
            self._places[path] = event.start_mark
            found[event.value] = self._read(next(self._events), path)
        # Drop empty values: Kubernetes reads `labels:` as if it were absent.
        return {key: value for key, value in found.items() if value is not None}


def _resolve(text: str) -> Any:
    """A plain scalar's value."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text
