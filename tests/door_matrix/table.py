"""What cells have seen <-> the tables of this folder's README.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests import page_tables
from tests.door_matrix.doors import DOORS
from tests.door_matrix.killed import KILLED
from tests.door_matrix.refusal_cells import REFUSAL_CELLS
from tests.door_matrix.stream_cells import STREAM_CELLS
from tests.page_tables import cells_of, make_line, merge_rows

PAGE: Final = Path(__file__).with_name("README.md")
COMMAND: Final = "python -m tests.door_matrix --write"
HOW: Final = f"run: {COMMAND}"

_TABLES: Final = (
    tuple(cell.name for cell in REFUSAL_CELLS),
    (*(cell.name for cell in STREAM_CELLS), *KILLED),
)
"""The columns of each."""


def make_tables(seen: Mapping[tuple[str, str], str]) -> str:
    """Markdown: a row for all doors that do the same."""
    return "\n".join(_make_table(columns, seen) for columns in _TABLES)


def write_tables(page: str, tables: str) -> str:
    """The page with these tables in their place."""
    return page_tables.write_tables(page, COMMAND, tables)


def read_tables(page: str) -> dict[tuple[str, str], str]:
    """(door, column) -> what the page says."""
    told, head = dict[tuple[str, str], str](), list[str]()
    for line in page_tables.read_tables(page, COMMAND):
        doors, *cells = cells_of(line)
        if doors == "door":
            head = cells
        elif not doors.startswith("---"):
            told |= {
                (door, column): cell for door in doors.split("; ") for column, cell in zip(head, cells, strict=True)
            }
    return told


def _make_table(columns: Sequence[str], seen: Mapping[tuple[str, str], str]) -> str:
    rows = [(door.name, [seen[door.name, column] for column in columns]) for door in DOORS]
    lines = [["door", *columns], ["---"] * (len(columns) + 1), *merge_rows(rows, "; ")]
    return "".join(f"{make_line(*line)}\n" for line in lines)
