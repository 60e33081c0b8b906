"""Table of options -> typed options, or an error that knows which of them is wrong."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tg_base.config.table_reader import TableReader
from tg_schema.errors import BadRequest

Options = TypeVar("Options", bound=msgspec.Struct)


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
        reader = TableReader()
        reader.read(table, kind)
        raise BadRequest(f"{owner}: {error}").at(*reader.wrong[0].blamed) from None
