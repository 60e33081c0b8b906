"""How the log and the page of model servers say that requests of a pool ended."""

from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import pytest
import structlog

from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.picker.provider.test_pool_provider import OpenPool, open_pool, servers, text
from tg_picker.provider import Pool
from tg_schema.errors import IncompleteStream

__all__ = ["open_pool", "servers"]
EMPTY = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


async def outcome(pool: Pool) -> str:
    logs: list[MutableMapping[str, Any]]
    with structlog.testing.capture_logs() as logs, suppress(IncompleteStream):
        await text(pool)
    [line] = [each for each in logs if each["event"] == "pool.request"]
    assert pool._picker.board.decisions[0].outcome == line["outcome"]
    return str(line["outcome"])


@pytest.mark.parametrize("hedge", [0, 0.1])
@pytest.mark.parametrize(
    ("script", "ended"),
    [
        (Script(), "answered"),
        (Script(fault=Fault.RAW, raw=EMPTY, after=0), "answered"),
        (Script(fault=Fault.DONE_WITHOUT_FINISH), "incomplete-stream"),
        (Script(fault=Fault.CLEAN_END, after=1), "incomplete-stream"),
    ],
)
async def test_the_outcome_is_what_the_client_was_told(
    servers: list[OpenAiServer], open_pool: OpenPool, script: Script, ended: str, hedge: float
) -> None:
    pool = await open_pool(servers[0], explain=True, hedge=hedge)
    servers[0].play(script)
    assert await outcome(pool) == ended
