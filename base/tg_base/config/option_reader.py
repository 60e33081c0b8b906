"""Table of options -> typed options, or an error that names the wrong one."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tg_base.config.table_reader import TableReader
from tg_schema.errors import BadRequest

Options = TypeVar("Options", bound=msgspec.Struct)


def read_options(table: Mapping[str, Any], kind: type[Options], owner: str) -> Options:
    """Convert a table to typed options.

    Args:
        table: the table of the configuration.
        kind: the class of the options.
        owner: the owner of the options, for the error.

    Raises:
        BadRequest: an option is unknown, missing or has a wrong value; the error's `option` has its keys.
    """
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError:
        # msgspec reports the place only within its message; the second reading finds the keys.
        reader = TableReader()
        reader.read(table, kind)
        first = reader.wrong[0]
        raise BadRequest(f"{owner}: {first.describe(whole='its options')}").at(*first.blamed) from None
