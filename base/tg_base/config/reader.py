"""TOML file -> Config, or one error that names file, line and what to do."""

import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin

import msgspec

from tg_base.config.findings import Findings, FirstFinding
from tg_base.config.model import Config, ServiceConfig, Source
from tg_base.config.remains import ConfigRemains
from tg_base.config.rules import faults, foreign_faults, foreign_fields
from tg_base.config.services import SERVICES
from tg_base.config.toml_positions import Keys, places_of
from tg_schema.errors import BadRequest, Internal

DEFAULT_FILE = Path(__file__).with_name("default.toml")
"""What holds where no file is given: the embedded demo model. Made to be copied."""

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Bytes of a configuration file."""

Services = tuple[type[ServiceConfig], ...]
Result = TypeVar("Result")
_Flows = dict[str, dict[str, dict[str, Any]]]

_PATH = re.compile(r" - at `\$(.*)`$")
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


def read_config(file: Path, services: Services = SERVICES) -> Config:
    """Read and check a file, the flows of which may bind these services.

    Raises:
        BadRequest: it is not there, is not TOML, or says something wrong: the first thing, with file and line.
    """
    return _sound(inspect_config(file, FirstFinding(), services))


def parse_config(text: str, file: Path, services: Services = SERVICES) -> Config:
    """Read and check what a file says.

    Raises:
        BadRequest: as `read_config`.
    """
    return _sound(_inspect(text, file, FirstFinding(), services))


def inspect_config(file: Path, findings: Findings, services: Services = SERVICES) -> Config | None:
    """Read a file and find all that is wrong in it; None where a field is, so that the rest cannot be judged.

    Raises:
        BadRequest: it cannot be read, or is not TOML.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise BadRequest(f"{file} is not there; name an existing configuration file") from None
    except IsADirectoryError:
        raise BadRequest(f"{file} is a directory; name a configuration file in it") from None
    except OSError:
        raise BadRequest(f"{file} cannot be read; check who may read it") from None
    if len(data) > MAX_FILE_BYTES:
        raise BadRequest(f"{file} is larger than {MAX_FILE_BYTES} bytes; a configuration is small")
    try:
        return _inspect(data.decode("utf-8-sig"), file, findings, services)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadRequest(f"{file}, line {line}: a byte that is not UTF-8; save the file as UTF-8") from None


def _sound(config: Config | None) -> Config:
    if config is None:
        raise Internal("a configuration without a fault could not be read")
    return config


def _inspect(text: str, file: Path, findings: Findings, services: Services) -> Config | None:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        _refuse_syntax(text, file, str(error))
    except RecursionError:
        raise BadRequest(f"{file}: tables or lists are nested too deep") from None
    source = Source(file, places_of(text.replace("\r\n", "\n")), services)
    if "source" in data:
        findings.add(_unknown_field(source, (), "source", Config))
        return None
    config = _convert(source, data, findings)
    if config is None:
        return None
    config = msgspec.structs.replace(config, source=source)
    for fault in faults(config):
        findings.add(fault)
    return config


def _convert(source: Source, data: dict[str, Any], findings: Findings) -> Config | None:
    """Each wrong value is a finding. `data` is used up. A service's table has a type of its own, by its key."""
    tables, whole = _convert_table(source, ("flows",), data.pop("flows", {}), _Flows, findings)
    config, rest_whole = _convert_table(source, (), data, Config, findings)
    flows: dict[str, dict[str, ServiceConfig]] = {}
    for flow, services in (tables or {}).items():
        flows[flow] = {}
        for service, said in services.items():
            bound, sound = _convert_service(source, (flow, service), said, findings)
            flows[flow][service] = bound or ServiceConfig()
            whole = whole and sound
    if config is not None and whole and rest_whole:
        return msgspec.structs.replace(config, flows=flows)
    for fault in foreign_faults(Config(flows=flows, source=source)):
        findings.add(fault)
    return None


def _convert_service(
    source: Source, keys: Keys, data: dict[str, Any], findings: Findings
) -> tuple[ServiceConfig | None, bool]:
    """What belongs to other services, and a service that nobody knows, is a matter of the rules."""
    kind = next((each for each in source.services if each.spec is not None and each.spec.name == keys[-1]), None)
    if kind is None:
        return None, True
    foreign = foreign_fields(source.services, kind)
    own = {field: value for field, value in data.items() if field not in foreign}
    return _convert_table(source, ("flows", *keys), own, kind, findings)


def _convert_table(
    source: Source, table: Keys, data: Any, kind: type[Result], findings: Findings
) -> tuple[Result | None, bool]:
    """What a table says, and whether all of it was right. Each wrong value is a finding, and is left out."""
    remains = ConfigRemains(table, data, kind)
    while True:
        try:
            return msgspec.convert(remains.data, kind), remains.whole
        except msgspec.ValidationError as error:
            wrong = _wrong_field(source, remains, str(error))
            if not remains.lacks(wrong.option):  # a field that was cut out is not missing in the file
                findings.add(wrong)
            if wrong.option == table:
                return None, False
            remains.cut(wrong.option)


def _refuse_syntax(text: str, file: Path, reason: str) -> NoReturn:
    spot = _SPOT.search(reason)
    line = int(spot[1]) if spot and spot[1] else len(text.rstrip().splitlines()) or 1
    words = _SPOT.sub("", reason)
    raise BadRequest(f"{file}, line {line}: not valid TOML: {words[:1].lower()}{words[1:]}")


def _wrong_field(source: Source, remains: ConfigRemains, reason: str) -> BadRequest:
    path = _PATH.search(reason)
    keys, kind = remains.follow(path[1] if path else "")
    what = _PATH.sub("", reason)
    if field := _FIELD.search(what):
        if field[1] == "unknown":
            return _unknown_field(source, keys, field[2], kind)
        return BadRequest(f"{source.where(*keys)}: {_join_keys(keys)} needs the field {field[2]}; add it").at(*keys)
    if types := _TYPES.search(what):
        wanted, found = (_WORDS.get(word, word) for word in (types[1].removesuffix(" | null"), types[2]))
        return BadRequest(f"{source.where(*keys)}: {_join_keys(keys)} must be {wanted}, not {found}").at(*keys)
    if get_origin(kind) is Literal:
        choices = ", ".join(f'"{choice}"' for choice in get_args(kind))
        return BadRequest(f"{source.where(*keys)}: {_join_keys(keys)} must be one of {choices}").at(*keys)
    word, _, limit = what.removeprefix("Expected ").replace("`", "").partition(" ")
    return BadRequest(f"{source.where(*keys)}: {_join_keys(keys)} must be {_WORDS.get(word, word)} {limit}").at(*keys)


def _unknown_field(source: Source, keys: Keys, name: str, kind: Any) -> BadRequest:
    known = [field for field in kind.__struct_fields__ if (kind, field) != (Config, "source")]
    close = get_close_matches(name, known, 1)
    advice = f'did you mean "{close[0]}"?' if close else f"known are {', '.join(known)}"
    sentence = f'{source.where(*keys, name)}: unknown field "{name}" in {_join_keys(keys)}; {advice}'
    return BadRequest(sentence).at(*keys, name)


def _join_keys(keys: Keys) -> str:
    return ".".join(keys) or "the file"
