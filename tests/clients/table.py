"""What clients saw <-> the table of this folder's README.md."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tests import page_tables
from tests.clients.clients import CLIENTS, Client
from tests.clients.features import COLUMNS, FEATURES, describe
from tests.clients.stage import Doors
from tests.page_tables import cells_of, make_line

PAGE: Final = Path(__file__).with_name("README.md")
COMMAND: Final = "python -m tests.clients --write"
HOW: Final = f"run: {COMMAND}"
NOTHING: Final = "-"
"""The cell of a feature that a client has not."""


def make_lines(client: Client, seen: Doors) -> list[str]:
    """The client's lines: one for each door.

    Raises:
        AssertionError: it saw something else than it should.
    """
    return [
        make_line(
            *(client.name, client.version, door),
            *(describe(name, features[name]) if name in features else NOTHING for name in FEATURES),
        )
        for door, features in seen.items()
    ]


def make_table(lines: Iterable[str]) -> str:
    """Markdown: the clients in their order."""
    head = ("client", "version", "door", *COLUMNS)
    order = [client.name for client in CLIENTS]
    rows = sorted(lines, key=lambda line: order.index(cells_of(line)[0]))
    return "".join(f"{line}\n" for line in (make_line(*head), make_line(*["---"] * len(head)), *rows))


def write_table(page: str, table: str) -> str:
    """The page with this table in its place."""
    return page_tables.write_tables(page, COMMAND, table)


def read_lines(page: str) -> Sequence[str]:
    """The clients' lines of the page."""
    return page_tables.read_tables(page, COMMAND)[2:]
