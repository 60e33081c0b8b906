"""Flows and [services] of the configuration -> the kinds of service that a process can run, ours and others'."""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import structlog

from tg_base.config import SERVICE_KINDS, SERVICES, Config, advise, read_services
from tg_base.runtime import explaining_absence, find_entry_point, find_entry_points, load_object, translate_defects
from tg_base.server.service_kind import ServiceKind
from tg_schema.errors import BadRequest, Internal, NotFound, Unavailable

log = structlog.get_logger()


def add_kinds(services: Mapping[str, str], file: Path | None, gateway: str, only: Iterable[str]) -> dict[str, str]:
    """The places of all kinds of services: ours, the given ones, the file's, and those of installed packages.

    From installed packages, only kinds that a flow of the file binds or `only` names. All kinds but ours are imported.

    Args:
        services: places by the services' names; the file cannot replace one.
        file: the configuration; None = the built-in one.
        gateway: the name of the part that is no service.
        only: the parts that the command line names.

    Raises:
        BadRequest: a service cannot be used, or a part does not exist; the message says what to do.
    """
    config = Config() if file is None else read_services(file)
    ours = tuple(table.spec.name for table in SERVICES if table.spec is not None)
    installed = find_entry_points(SERVICE_KINDS).names
    named = {*only, *(name for bound in config.flows.values() for name in bound)} & installed - {*ours, gateway}
    places = {**{name: name for name in (*ours, *sorted(named))}, **services}
    for name, place in config.services.items():
        if name == gateway or name in ours or services.get(name, place) != place:
            raise config.fault(f"{name} is a part of ours; give the service another name", "services", name)
        places[name] = place
    parts = (*places, gateway)
    for part in only:
        if part not in parts:
            known = dict.fromkeys((*parts, *sorted(installed)))
            raise BadRequest(f'there is no part "{part}"; {advise(part, known)}')
    return {name: _find(config, name, place, checked=name not in ours) for name, place in places.items()}


def _find(config: Config, name: str, place: str, *, checked: bool) -> str:
    """The "module:Class" of a name or place."""
    flow = next((flow for flow, bound in config.flows.items() if name in bound), "")
    keys = ("services", name) if name in config.services or not flow else ("flows", flow, name)
    try:
        point = find_entry_point(SERVICE_KINDS, place, "service", "module:Class")
    except NotFound as error:
        raise config.fault(error.message, *keys) from None
    if checked:
        _check(config, name, point, *keys)
    return f"{point.module}:{point.attr}"


def _check(config: Config, name: str, point: EntryPoint, *keys: str) -> None:
    defect = f'"{point.value}" cannot be imported: the log says why'
    try:
        with (
            translate_defects(Internal, defect, "service.defect", log.bind(service=name)),
            explaining_absence(f'the service "{name}"', point),
        ):
            kind = load_object(point)
    except (Internal, Unavailable) as error:
        raise config.fault(error.message, *keys) from None
    if not isinstance(kind, type) or not issubclass(kind, ServiceKind) or not hasattr(kind, "table"):
        advice = f'"{point.value}" is no "module:Class" of a subclass of tg_base.server.ServiceKind'
        raise config.fault(advice, *keys)
    called = kind.table.spec and kind.table.spec.name
    if called != name:
        raise config.fault(f'the service of {point.value} is called "{called}"; give it that name', *keys)
