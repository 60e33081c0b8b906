"""Installed distributions -> the table of mounts: each door is an entry point, ours and other people's alike."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Final

import structlog

from tg_base.runtime import find_entry_points, translate_defects
from tg_gateway.dialects import Dialect, Mount
from tg_gateway.keyed_dialect import KeyedDialect
from tg_schema.errors import Unavailable

log = structlog.get_logger()

DOORS: Final = "tokengrid.doors"
"""The group of entry points. A door's name is its own; its value is the "module:NAME" of a tuple of `Mount`."""


def load_mounts() -> tuple[Mount, ...]:
    """The rows of all doors that are installed.

    Raises:
        Unavailable: as `join_doors`.
    """
    return join_doors(find_entry_points(DOORS))


def join_doors(points: Iterable[EntryPoint]) -> tuple[Mount, ...]:
    """The rows of some doors, in the order of their names.

    Raises:
        Unavailable: no door is installed, one cannot be loaded, two have the same row, or one cannot share its path.
            The message names the distributions.
    """
    rows: dict[tuple[str, str, str, str], dict[str, tuple[Mount, EntryPoint]]] = {}
    for point in sorted(points, key=lambda point: point.name):
        for mount in _load(point):
            sharing = rows.setdefault((mount.method, mount.path, mount.header, mount.accept), {})
            if mount.key in sharing:
                both = f"{_name(sharing[mount.key][1])} and {_name(point)}"
                raise Unavailable(
                    f"{both} both answer {mount.method} {mount.path}: uninstall one, or give the rows of one a "
                    "`header` or a `key` by which its requests are told"
                )
            sharing[mount.key] = (mount, point)
    if not rows:
        raise Unavailable("no door is installed: install tokengrid-gateway anew (in a checkout: make .venv/ready)")
    return tuple(_join(list(sharing.values())) for sharing in rows.values())


def _load(point: EntryPoint) -> Iterator[Mount]:
    with translate_defects(Unavailable, f"{_name(point)} cannot be loaded: mend or uninstall it", "gateway.door", log):
        mounts = point.load()
    if not isinstance(mounts, tuple) or not all(isinstance(mount, Mount) for mount in mounts):
        raise Unavailable(f"{_name(point)} is no tuple of `Mount`: mend or uninstall it")
    yield from (replace(mount, door=point.name) for mount in mounts)


def _name(point: EntryPoint) -> str:
    return f'the door "{point.name}" of {point.dist.name if point.dist else point.value}'


def _join(rows: Sequence[tuple[Mount, EntryPoint]]) -> Mount:
    """One row for rows with the same path: the body's keys decide whose a request is."""
    sharing = [mount for mount, _ in rows]
    if len(sharing) == 1:
        return sharing[0]
    for mount, point in rows:
        if mount.socket or type(mount.dialect).check_head is not Dialect.check_head:
            raise Unavailable(
                f"{_name(point)} shares {mount.method} {mount.path} with another door. No key of a body can tell its "
                "sockets or the heads that it checks: give its row a `header`"
            )
    last = next((mount for mount in sharing if not mount.key), sharing[-1])
    keyed = {mount.key: (mount.dialect, mount.operation) for mount in sharing if mount.key}
    dialect = KeyedDialect(keyed, (last.dialect, last.operation))
    large, keyless = any(mount.large for mount in sharing), all(mount.keyless for mount in sharing)
    return replace(last, dialect=dialect, key="", large=large, keyless=keyless)
