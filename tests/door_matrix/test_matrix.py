"""Every door x every cell, with a real gateway and a client that reads bytes; the page says what is seen."""

import asyncio
from pathlib import Path

import pytest

from tests.connected.pipeline import pipeline
from tests.door_matrix.cell import Cell
from tests.door_matrix.cells import CELLS
from tests.door_matrix.door import Door
from tests.door_matrix.doors import DOORS
from tests.door_matrix.killed import kill_both
from tests.door_matrix.over_pulsar import run_over
from tests.door_matrix.stage import open_stage
from tests.door_matrix.table import HOW, PAGE, read_tables
from tests.fakes.live_openai import LiveOpenAi
from tests.pulsar_server import PulsarServer

TOLD = read_tables(PAGE.read_text("utf-8"))
"""What the page says."""


def _slug(named: Cell | Door) -> str:
    return named.name.replace(",", "").replace(" ", "-")


@pytest.mark.parametrize("door", DOORS, ids=_slug)
@pytest.mark.parametrize("cell", CELLS, ids=_slug)
async def test_over_memory(cell: Cell, door: Door) -> None:
    seen = await asyncio.wait_for(cell.run(door, open_stage), 90)
    assert TOLD[door.name, cell.name] == seen, HOW


@pytest.mark.connected
async def test_over_pulsar(pulsar: PulsarServer) -> None:
    """What is told of the doors does not depend on the bus."""
    for (door, column), seen in (await run_over(pulsar.service_url)).items():
        assert TOLD[door, column] == seen, (door, column)


@pytest.mark.connected
@pytest.mark.timeout(300)
async def test_killed_processes(pulsar: PulsarServer, tmp_path: Path) -> None:
    async with LiveOpenAi.listening() as model, pipeline(model.url, pulsar.service_url, tmp_path) as line:
        for (door, column), seen in (await kill_both(line, model)).items():
            assert TOLD[door, column] == seen, (door, column, HOW)
