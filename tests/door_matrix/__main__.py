"""`python -m tests.door_matrix [--write]`: run every cell, print the tables; with --write, into the page.

It needs what `make test-connected` needs: the columns of killed processes are run over a real Pulsar.
"""

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

import structlog

from tests.connected.pipeline import pipeline
from tests.door_matrix.cells import CELLS
from tests.door_matrix.doors import DOORS
from tests.door_matrix.killed import Seen, kill_both
from tests.door_matrix.stage import open_stage
from tests.door_matrix.table import PAGE, make_tables, write_tables
from tests.fakes.live_openai import LiveOpenAi
from tests.pulsar_server import PulsarServer


async def _run(url: str, folder: Path) -> Seen:
    seen = {(door.name, cell.name): await cell.run(door, open_stage) for cell in CELLS for door in DOORS}
    async with LiveOpenAi.listening() as model, pipeline(model.url, url, folder) as line:
        return seen | await kill_both(line, model)


def main() -> int:
    """Run everything; fails with the first cell that breaks a promise."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with PulsarServer() as server, tempfile.TemporaryDirectory() as folder:
        tables = make_tables(asyncio.run(_run(server.service_url, Path(folder))))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(write_tables(PAGE.read_text("utf-8"), tables), "utf-8")
    else:
        print(tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
