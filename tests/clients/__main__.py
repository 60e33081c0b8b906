"""`python -m tests.clients [--newest] [--all] [--write] [NAME ...]`: run the clients, print their table; or write it.

--newest resolves the versions anew, from the package indexes, before that; --write writes the table into the page;
--all runs the large clients too. A name runs that client alone: the lines of the others stay.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

import structlog

from tests.clients.clients import CLIENTS, Client
from tests.clients.environment import resolve_newest
from tests.clients.stage import ask
from tests.clients.table import PAGE, make_lines, make_table, read_lines, write_table
from tests.page_tables import cells_of


def _run(client: Client) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return make_lines(client, asyncio.run(ask(client, Path(folder))))


def main() -> int:
    """Run those that are named, or all; fails with the first cell that breaks a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients")
    parser.add_argument("--newest", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if options.newest:
        resolve_newest()
    run = [client for client in CLIENTS if client.name.strip("`") in options.names]
    run = run or [client for client in CLIENTS if options.all or not client.large]
    page, known = PAGE.read_text("utf-8"), {client.name for client in CLIENTS}
    kept = [line for line in read_lines(page) if cells_of(line)[0] in known - {client.name for client in run}]
    table = make_table([*kept, *(line for client in run for line in _run(client))])
    if options.write:
        PAGE.write_text(write_table(page, table), "utf-8")
    else:
        print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
