"""A TOML file of its own, beside the configuration -> one value, or its first error with its line."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tg_base.config.model import Source
from tg_base.config.table_reader import TableReader
from tg_base.config.text_file import read_text
from tg_base.config.toml_positions import places_of
from tg_base.config.toml_text import parse_toml
from tg_schema.errors import BadRequest

Table = TypeVar("Table", bound=msgspec.Struct)


def read_table(file: Path, kind: type[Table], check: Callable[[Table], object]) -> Table:
    """Read a file whose tables are the fields of `kind`.

    Args:
        file: what to read.
        kind: its form.
        check: checks what types cannot express; raises BadRequest, whose `option` is the wrong value's place.

    Raises:
        BadRequest: it cannot be read, is not TOML, or has a wrong value; the message names file, line and remedy.
    """
    text = read_text(file)
    reader = TableReader()
    table: Table | None = reader.read(parse_toml(text, file), kind)
    source = Source(file, places_of(text.replace("\r\n", "\n")))
    for wrong in reader.wrong:
        raise BadRequest(f"{source.where(*wrong.blamed)}: {wrong.describe()}")
    if table is None:
        raise BadRequest(f"{file}: nothing in it can be read")
    try:
        check(table)
    except BadRequest as error:
        raise BadRequest(f"{source.where(*error.option)}: {error.message}") from None
    return table
