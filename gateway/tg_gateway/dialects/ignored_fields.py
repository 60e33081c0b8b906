"""Fields that a request's model cannot use -> a header of the answer, and a line in the log for each name."""

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

import structlog

log = structlog.get_logger()

IGNORED_HEADER: Final = "X-Tokengrid-Ignored"
"""Lists the fields of the request that the answer does not depend on, in alphabetical order."""
MAX_LISTED_FIELDS = 32
"""Fields that the header names."""
MAX_READ_FIELDS = 1024
"""Fields of a request that are looked at: no client has more, but a hostile body may."""
MAX_LOGGED_FIELDS = 1024
"""Names that are logged in the life of a process: whoever makes up new ones must not fill the log."""
_logged: Final[set[tuple[str, str]]] = set()
_NAME: Final = re.compile(r"[\w.\[\]-]{1,64}", re.ASCII)
"""A name that can stand in a header and in a log; any other is nobody's field."""


def show_ignored(dialect: str, fields: Iterable[str]) -> dict[str, str]:
    """The header of an answer whose request, in this dialect, had these fields; empty if there are none."""
    shown = [name for name in sorted(set(islice(fields, MAX_READ_FIELDS))) if _NAME.fullmatch(name)][:MAX_LISTED_FIELDS]
    for name in shown:
        _log_once(dialect, name)
    return {IGNORED_HEADER: ", ".join(shown)} if shown else {}


def _log_once(dialect: str, name: str) -> None:
    if (dialect, name) not in _logged and len(_logged) < MAX_LOGGED_FIELDS:
        _logged.add((dialect, name))
        log.info("gateway.ignored_field", dialect=dialect, field=name)
