"""[services] of the configuration -> kinds of service that a process can run beside ours."""

from collections.abc import Collection
from importlib import import_module
from pathlib import Path

import structlog

from tg_base.config import Config, read_services
from tg_base.runtime import translate_defects
from tg_base.server.service_kind import ServiceKind
from tg_schema.errors import Internal

log = structlog.get_logger()


def find_kinds(file: Path, taken: Collection[str]) -> dict[str, str]:
    """The places of the kinds that a file names, by the names of their services; each has been imported.

    Args:
        file: the configuration.
        taken: names that a service cannot have.

    Raises:
        BadRequest: one cannot be used; the message has its line, and what to do.
    """
    config = read_services(file)
    for name, place in config.services.items():
        if name in taken:
            raise config.fault(f"{name} is a part of ours; give the service another name", "services", name)
        _check(config, name, place)
    return config.services


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
