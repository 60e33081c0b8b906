"""[services] of the configuration -> kinds of service that a process can run beside ours."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

import structlog

from tg_base.config import Config, advise, read_services
from tg_base.runtime import translate_defects
from tg_base.server.service_kind import ServiceKind
from tg_schema.errors import BadRequest, Internal

log = structlog.get_logger()


def add_kinds(services: Mapping[str, str], file: Path | None, gateway: str, only: Iterable[str]) -> dict[str, str]:
    """The places of the kinds of services and of those that a file adds; each of the latter has been imported.

    Args:
        services: places by the services' names; the file cannot replace one.
        file: the configuration; None = the built-in one.
        gateway: the name of the part that is no service.
        only: the parts that were asked for.

    Raises:
        BadRequest: a service of the file cannot be used, or there is no such part; the message says what to do.
    """
    config = Config() if file is None else read_services(file)
    for name, place in config.services.items():
        if name == gateway or services.get(name, place) != place:
            raise config.fault(f"{name} is a part of ours; give the service another name", "services", name)
        _check(config, name, place)
    parts = (*services, *config.services, gateway)
    for part in only:
        if part not in parts:
            raise BadRequest(f'there is no part "{part}"; {advise(part, parts)}')
    return {**services, **config.services}


def _check(config: Config, name: str, place: str) -> None:
    module, _, attribute = place.partition(":")
    try:
        with translate_defects(Internal, "a defect", "service.defect", log.bind(service=name), known=(ImportError,)):
            kind = getattr(import_module(module), attribute, None)
    except (Internal, ImportError) as error:
        why = f"the module {error.name} is missing" if isinstance(error, ImportError) else "the log says why"
        advice = f'"{place}" cannot be imported: {why}; install it, or put its folder on PYTHONPATH'
        raise config.fault(advice, "services", name) from None
    if not isinstance(kind, type) or not issubclass(kind, ServiceKind) or not hasattr(kind, "table"):
        advice = f'"{place}" is no "module:Class" of a subclass of tg_base.server.ServiceKind'
        raise config.fault(advice, "services", name)
    called = kind.table.spec and kind.table.spec.name
    if called != name:
        raise config.fault(f'the service of {place} is called "{called}"; give it that name here', "services", name)
