"""TOML file -> Config, or one error that names file, line and what to do."""

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import msgspec

from tg_base.config import Config, Source
from tg_base.config_rules import check
from tg_base.toml_places import Keys, places_of
from tg_schema.errors import BadRequest

DEFAULT = Path(__file__).with_name("default.toml")
"""What holds where no file is given: the embedded demo model. Made to be copied."""

LARGEST = 4 * 1024 * 1024
"""Bytes of a configuration file."""

_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_FIELD = re.compile(r"(unknown|missing required) field `(.*)`")
_TYPES = re.compile(r"Expected `([^`]*)`, got `([^`]*)`")
_SPOT = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_WORDS = {
    "object": "a table",
    "array": "a list",
    "str": "text",
    "Path": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}


def read_config(file: Path) -> Config:
    """Read and check a file.

    Raises:
        BadRequest: it is not there, is not TOML, or says something wrong.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except FileNotFoundError:
        raise BadRequest(f"{file} is not there; name an existing configuration file") from None
    except IsADirectoryError:
        raise BadRequest(f"{file} is a directory; name a configuration file in it") from None
    except OSError:
        raise BadRequest(f"{file} cannot be read; check who may read it") from None
    if len(data) > LARGEST:
        raise BadRequest(f"{file} is larger than {LARGEST} bytes; a configuration is small")
    try:
        return parse_config(data.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadRequest(f"{file}, line {line}: a byte that is not UTF-8; save the file as UTF-8") from None


def parse_config(text: str, file: Path) -> Config:
    """Read and check what a file says.

    Raises:
        BadRequest: it is not TOML, or says something wrong; with file and line.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _refuse_syntax(text, file, str(error))
    except RecursionError:
        raise BadRequest(f"{file}: tables or lists are nested too deep") from None
    source = Source(file, places_of(text.replace("\r\n", "\n")))
    if "source" in data:
        raise _unknown_field(source, (), "source", Config)
    try:
        config = msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        raise _wrong_field(source, data, str(error)) from None
    config = msgspec.structs.replace(config, source=source)
    check(config)
    return config


def _refuse_syntax(text: str, file: Path, reason: str) -> NoReturn:
    spot = _SPOT.search(reason)
    line = int(spot[1]) if spot and spot[1] else len(text.rstrip().splitlines()) or 1
    words = _SPOT.sub("", reason)
    raise BadRequest(f"{file}, line {line}: not valid TOML: {words[:1].lower()}{words[1:]}")


def _wrong_field(source: Source, data: dict[str, Any], reason: str) -> BadRequest:
    path = _PATH.search(reason)
    keys, kind = _followed(data, path[1] if path else "")
    what = _PATH.sub("", reason)
    if field := _FIELD.search(what):
        if field[1] == "unknown":
            return _unknown_field(source, keys, field[2], kind)
        return BadRequest(f"{source.where(*keys)}: {_named(keys)} needs the field {field[2]}; add it")
    if types := _TYPES.search(what):
        wanted, found = (_WORDS.get(word, word) for word in (types[1].removesuffix(" | null"), types[2]))
        return BadRequest(f"{source.where(*keys)}: {_named(keys)} must be {wanted}, not {found}")
    if get_origin(kind) is Literal:
        choices = ", ".join(f'"{choice}"' for choice in get_args(kind))
        return BadRequest(f"{source.where(*keys)}: {_named(keys)} must be one of {choices}")
    word, _, limit = what.removeprefix("Expected ").replace("`", "").partition(" ")
    return BadRequest(f"{source.where(*keys)}: {_named(keys)} must be {_WORDS.get(word, word)} {limit}")


def _unknown_field(source: Source, keys: Keys, name: str, kind: Any) -> BadRequest:
    known = [field for field in get_type_hints(kind) if (kind, field) != (Config, "source")]
    close = get_close_matches(name, known, 1)
    advice = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(known)}"
    return BadRequest(f'{source.where(*keys, name)}: unknown field "{name}" in {_named(keys)}; {advice}')


def _named(keys: Keys) -> str:
    return ".".join(keys) or "the file"


def _followed(data: Any, path: str) -> tuple[Keys, Any]:
    """The keys of the wrong value, and its type. msgspec names a table's free keys `...`: try which of them it is."""
    keys: list[str] = []
    kind: Any = Config
    for name, index in _STEP.findall(path):
        kind = _member(kind, name)
        key = name or (_first_wrong(data, kind) if index == "..." else index)
        data = data[int(key)] if isinstance(data, list) else data[key]
        keys.append(key)
    return tuple(keys), _bare(kind)


def _first_wrong(data: dict[str, Any], kind: Any) -> str:
    for key, value in data.items():
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            return key
    return next(iter(data))


def _member(kind: Any, name: str) -> Any:
    kind = _bare(kind)
    if name:
        return get_type_hints(kind, include_extras=True)[name]
    return get_args(kind)[1 if get_origin(kind) is dict else 0]


def _bare(kind: Any) -> Any:
    """Without `| None` and without constraints."""
    if get_origin(kind) in {Union, UnionType}:
        kind = next(part for part in get_args(kind) if part is not type(None))
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind
