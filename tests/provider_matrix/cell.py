"""One column of the matrix, and how it is run for one provider."""

import asyncio
from dataclasses import dataclass

import pytest

from tests.provider_matrix.asking import REQUEST, responses
from tests.provider_matrix.case import Case, Run, Stage, Tells, staged
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest
from tg_schema.features import Feature


@dataclass(frozen=True)
class Cell:
    """One column.

    Attributes:
        name: its head in the table.
        run: asks, and asserts.
        feature: that the provider must announce; else `asks` must be refused before anything is sent.
        tells: that the wire must carry; else the cell is left out, or `asks` refused where it is `refusable`.
        asks: a request that needs the feature.
    """

    name: str
    run: Run
    feature: Feature | None = None
    tells: Tells | None = None
    refusable: bool = False
    asks: TextCompletionRequest = REQUEST


def expected(case: Case, cell: Cell) -> bool | None:
    """What the case announces of the cell: True = it works, False = it is refused, None = the wire cannot tell."""
    if cell.tells is not None and cell.tells not in case.tells:
        return False if cell.refusable else None
    if cell.feature is not None and cell.feature not in case.features:
        return False
    return None if case.own and cell.name not in case.own else True


async def play(case: Case, cell: Cell) -> bool | None:
    """Run one cell, and return `expected`.

    Raises:
        AssertionError: it neither works nor is it refused as announced.
    """
    supported = expected(case, cell)
    if supported is None:
        return None
    async with staged(case) as stage:
        run = case.own.get(cell.name, cell.run) if supported else _refused(cell.asks)
        await asyncio.wait_for(run(stage), 90)
    return supported


def _refused(request: TextCompletionRequest) -> Run:
    async def run(stage: Stage) -> None:
        async with stage.opened() as service:
            with pytest.raises(BadRequest):
                await responses(service, request)
        assert stage.wire.exchanges == []

    return run
