"""TOML file -> Config, or a table of another file, or errors that name file, line and remedy."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from tg_base.config.findings import Findings, FirstFinding
from tg_base.config.model import DOOR_TABLES, Config, GatewayConfig, ServiceConfig, Source
from tg_base.config.rules import faults, foreign_faults, foreign_fields
from tg_base.config.services import SERVICES
from tg_base.config.table_reader import TableReader, WrongValue
from tg_base.config.toml_positions import Keys, places_of
from tg_base.config.toml_text import parse_toml, read_text
from tg_base.runtime import find_entry_points, load_function
from tg_schema.errors import BadRequest, Internal

DEFAULT_FILE = Path(__file__).with_name("default.toml")
"""The configuration without a file: the embedded demo model. Meant to be copied."""

Table = TypeVar("Table", bound=msgspec.Struct)
Services = tuple[type[ServiceConfig], ...]
_Flows = dict[str, dict[str, dict[str, Any]]]


def read_config(file: Path, services: Services = SERVICES, completed: tuple[str, ...] = ()) -> Config:
    """Read and validate a file whose flows may bind these services.

    Args:
        file: the TOML file.
        services: the services that its flows may bind.
        completed: flows whose model the command line names, so that the file need not.

    Raises:
        BadRequest: the file is missing, is not TOML, or is invalid; the message has the first error with its line.
    """
    return parse_config(read_text(file), file, services, completed)


def read_default(services: Services = SERVICES) -> Config:
    """The configuration without a file. If llama.cpp is installed, it runs the model, since it can do more."""
    config = read_config(DEFAULT_FILE, services)
    if find_spec("llama_cpp") is None:
        return replace(config, source=None)
    models = {name: replace(model, provider="llama-cpp") for name, model in config.models.items()}
    return replace(config, models=models, source=None)


def parse_config(text: str, file: Path, services: Services = SERVICES, completed: tuple[str, ...] = ()) -> Config:
    """Parse and validate the text of a file; the arguments are as for `read_config`.

    Raises:
        BadRequest: as `read_config`.
    """
    config = _inspect(text, file, FirstFinding(), services, completed)
    if config is None:
        raise Internal("a configuration without a fault could not be read")
    return config


def read_services(file: Path) -> Config:
    """Read only `[services]` of a file and the names that its flows bind, which decide which services must be known.

    Errors there are ignored: reading the whole file reports them.

    Raises:
        BadRequest: it cannot be read, or is not TOML.
    """
    text = read_text(file)
    data, reader = parse_toml(text, file), TableReader()
    services = reader.read(data.get("services", {}), dict[str, str])
    tables = reader.read(data.get("flows", {}), _Flows)
    flows = {flow: dict.fromkeys(bound, ServiceConfig()) for flow, bound in (tables or {}).items()}
    return Config(services=services or {}, flows=flows, source=_locate(text, file))


def inspect_config(
    file: Path, findings: Findings, services: Services, completed: tuple[str, ...] = ()
) -> Config | None:
    """Read a file and collect all its errors; None if a field is wrong, since the rest cannot be checked then.

    The arguments are as for `read_config`.

    Raises:
        BadRequest: it cannot be read, or is not TOML.
    """
    return _inspect(read_text(file), file, findings, services, completed)


def read_table(file: Path, kind: type[Table], check: Callable[[Table], object]) -> Table:
    """Read a file whose tables are the fields of `kind`.

    Args:
        file: the file to read.
        kind: the type of its content.
        check: checks what types cannot express; raises BadRequest, whose `option` is the wrong value's place.

    Raises:
        BadRequest: it cannot be read, is not TOML, or has a wrong value; the message names file, line and remedy.
    """
    text = read_text(file)
    reader = TableReader()
    table: Table | None = reader.read(parse_toml(text, file), kind)
    source = _locate(text, file)
    for wrong in reader.wrong:
        raise BadRequest(f"{source.where(*wrong.blamed)}: {wrong.describe()}")
    if table is None:
        raise BadRequest(f"{file}: nothing in it can be read")
    try:
        check(table)
    except BadRequest as error:
        raise BadRequest(f"{source.where(*error.option)}: {error.message}") from None
    return table


def _inspect(
    text: str, file: Path, findings: Findings, services: Services, completed: tuple[str, ...]
) -> Config | None:
    data = parse_toml(text, file)
    source = _locate(text, file, services, completed)
    config = _convert(source, data, findings)
    if config is None:
        return None
    config = replace(config, source=source)
    for fault in faults(config):
        findings.add(fault)
    return config


def _locate(text: str, file: Path, services: Services = (), completed: tuple[str, ...] = ()) -> Source:
    # tomllib reads CRLF as LF, and positions are counted in what it reads.
    return Source(file, places_of(text.replace("\r\n", "\n")), services, completed)


def _convert(source: Source, data: dict[str, Any], findings: Findings) -> Config | None:
    """Convert the tables; each wrong value is a finding. The key of a service's table determines its type."""
    # `flows` is converted by itself, because msgspec cannot choose a type by the key of a table.
    reader = TableReader()
    tables = reader.read(data.get("flows", {}), _Flows, ("flows",))
    gateway: Any = data.get("gateway")
    named = find_entry_points(DOOR_TABLES).names & gateway.keys() if isinstance(gateway, dict) else ()
    doors = {
        name: reader.read(gateway.pop(name), load_function(DOOR_TABLES, name, "table of a door"), ("gateway", name))
        for name in sorted(named)
    }
    config: Config | None = reader.read({key: value for key, value in data.items() if key != "flows"}, Config)
    flows: dict[str, dict[str, ServiceConfig]] = {
        flow: {service: _read_service(source, reader, (flow, service), fields) for service, fields in services.items()}
        for flow, services in (tables or {}).items()
    }
    for wrong in reader.wrong:
        findings.add(_make_error(source, wrong))
    if config is not None and not reader.wrong:
        return replace(config, flows=flows, gateway=replace(config.gateway, doors=doors))
    for fault in foreign_faults(Config(flows=flows, source=source)):
        findings.add(fault)
    return None


def _read_service(source: Source, reader: TableReader, keys: Keys, data: dict[str, Any]) -> ServiceConfig:
    """Convert one service's table. Unknown services and fields of other services are left to `rules`."""
    kind = next((each for each in source.services if each.spec is not None and each.spec.name == keys[-1]), None)
    if kind is None:
        return ServiceConfig()
    foreign = foreign_fields(source.services, kind)
    own = {field: value for field, value in data.items() if field not in foreign}
    read: ServiceConfig | None = reader.read(own, kind, ("flows", *keys))
    return read or ServiceConfig()


def _make_error(source: Source, wrong: WrongValue) -> BadRequest:
    # This may be the table of a door, which needs the door's package even where no gateway runs.
    is_table = wrong.kind is GatewayConfig and any(keys[:-1] == wrong.blamed for keys in source.places)
    doors = ", ".join(sorted(find_entry_points(DOOR_TABLES).names)) or "none"
    advice = f"{wrong.describe()}; doors with a table here: {doors}" if is_table else wrong.describe()
    return BadRequest(f"{source.where(*wrong.blamed)}: {advice}").at(*wrong.blamed)
