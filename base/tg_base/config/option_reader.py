"""Table of options -> typed options, or an error that knows which of them is wrong."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tg_schema.errors import BadRequest

Options = TypeVar("Options", bound=msgspec.Struct)

_PATH = re.compile(r" - at `\$(.*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"unknown field `(.*)`")


def read_options(table: Mapping[str, Any], kind: type[Options], owner: str) -> Options:
    """What a table says, as the options of a kind.

    Args:
        table: as the configuration has it.
        kind: the options that there are.
        owner: whose options they are, for the error.

    Raises:
        BadRequest: an option is unknown, missing or has a wrong value; `option` has its keys.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{owner}: {error}").at(*_find_blamed(str(error))) from None


def _find_blamed(reason: str) -> tuple[str, ...]:
    path = _PATH.search(reason)
    keys = tuple(name or index for name, index in _STEP.findall(path[1])) if path else ()
    unknown = _UNKNOWN.search(reason)
    return (*keys, unknown[1]) if unknown else keys
