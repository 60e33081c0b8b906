"""The cells that are run over a real broker too: one gateway for all, since each door's client is another one's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.door_matrix.cells import CELLS
from tests.door_matrix.doors import DOORS
from tests.door_matrix.killed import Seen
from tests.door_matrix.stage import Stage, open_stage
from tests.flow.patient_timing import PatientTiming
from tg_base.bus import open_bus

PACE_SECONDS: Final = 10.0
"""A broker may stand still by itself for a while, which says nothing of the doors."""


async def run_over(url: str) -> Seen:
    """What the doors do over the bus at this URL."""
    async with (
        open_bus(url) as bus,
        open_stage(bus=bus, timing=PatientTiming(interval=0.2), pace=PACE_SECONDS) as stage,
    ):

        @asynccontextmanager
        async def opening() -> AsyncIterator[Stage]:
            yield stage

        return {
            (door.name, cell.name): await cell.run(door, opening) for cell in CELLS if cell.everywhere for door in DOORS
        }
