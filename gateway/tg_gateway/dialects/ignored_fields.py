"""Fields of a request that have no effect -> a header of the answer, and one log line per name."""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec
import structlog

from tg_schema import decode, try_decode

log = structlog.get_logger()

IGNORED_HEADER: Final = "X-Tokengrid-Ignored"
"""Lists the fields of the request that the answer does not depend on, in alphabetical order."""
MAX_LISTED_FIELDS = 32
"""Fields that the header names."""
MAX_READ_FIELDS = 1024
"""Fields of a request that are checked: only a hostile body has more."""
MAX_LOGGED_FIELDS = 1024
"""Names that a process logs in its life, so that a client with made-up names cannot fill the log."""
_logged: Final[set[tuple[str, str]]] = set()
_NAME: Final = re.compile(r"[\w.\[\]-]{1,64}", re.ASCII)
"""A name that is safe in a header and in a log. All real fields have such names."""


def show_ignored(dialect: str, fields: Iterable[str]) -> dict[str, str]:
    """The header that lists these ignored fields; empty if there are none."""
    shown = [name for name in sorted(set(islice(fields, MAX_READ_FIELDS))) if _NAME.fullmatch(name)][:MAX_LISTED_FIELDS]
    for name in shown:
        _log_once(dialect, name)
    return {IGNORED_HEADER: ", ".join(shown)} if shown else {}


def list_unknown(data: bytes, *kinds: type[msgspec.Struct], **within: type[msgspec.Struct] | None) -> Iterator[str]:
    """The names of a body's fields that no type has.

    Args:
        data: the JSON of the body.
        kinds: types of the body.
        within: the type of each field whose own fields are listed too, such as `options.num_gpu`; None = it has none.
    """
    sent = decode(dict[str, msgspec.Raw], data)
    yield from sent.keys() - {name for kind in kinds for name in kind.__struct_fields__} - within.keys()
    for outer, inner in within.items():
        given = try_decode(dict[str, msgspec.Raw], bytes(sent.get(outer, b"null"))) or {}
        yield from (f"{outer}.{name}" for name in given.keys() - set(inner.__struct_fields__ if inner else ()))


def _log_once(dialect: str, name: str) -> None:
    if (dialect, name) not in _logged and len(_logged) < MAX_LOGGED_FIELDS:
        _logged.add((dialect, name))
        log.info("gateway.ignored_field", dialect=dialect, field=name)
