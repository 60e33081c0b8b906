"""The columns for requests that get no answer: an error comes before its first byte."""

import hashlib
from typing import Final

from tests.door_matrix.cell import Cell, describe_refusal
from tests.door_matrix.door import Door, find
from tests.door_matrix.stage import OpenStage
from tests.door_matrix.visit import Visit
from tg_base.config import ApiKey, GatewayConfig
from tg_schema.errors import ContextLengthExceeded, Unavailable

BODY_LIMIT: Final = 2000
_KEY: Final = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest())
_LOCKED: Final = GatewayConfig(port=0, drain=0.05, keys=(_KEY,))
_NARROW: Final = GatewayConfig(port=0, drain=0.05, body_limit=BODY_LIMIT, large_body_limit=BODY_LIMIT)


async def _wrong_key(door: Door, opening: OpenStage) -> str:
    async with opening(config=_LOCKED) as it:
        visit = await it.ask(door, "1", key="wrong")
        assert it.llm.requests == []
        assert (await it.ask(door, "1", key="right")).whole
    assert visit.status == 401
    return describe_refusal(door, visit, retry=False) if door.way != "socket" else "401 at the handshake"


async def _unknown_model(door: Door, opening: OpenStage) -> str:
    async with opening() as it:
        visit = await it.ask(door, "1", model="nobody")
        assert it.llm.requests == []
    return describe_refusal(door, visit, retry=False)


async def _too_large(door: Door, opening: OpenStage) -> str:
    async with opening(config=_NARROW) as it:
        visit = await it.ask(door, "x" * (door.body_limits * BODY_LIMIT + 1))
        assert it.llm.requests == []
    return describe_refusal(door, visit, retry=False)


async def _full_queue(door: Door, opening: OpenStage) -> str:
    """One request runs, and none may wait."""
    async with opening(queue=0) as it:
        it.llm.go.clear()
        async with it.visit(door, "1") as running:
            await it.llm.spoke.wait()
            visit = await it.ask(door, "1")
            assert len(it.llm.requests) == 1
            it.llm.go.set()
            await running.finish()
        assert running.whole
    return f"{describe_refusal(door, visit, retry=True)}{_describe_wait(visit)}"


def _describe_wait(visit: Visit) -> str:
    """What a refusal says of when to come back."""
    if "Retry-After" in visit.headers:
        assert int(visit.headers["Retry-After"]) >= 1
        return ", `Retry-After`"
    waits = {
        place: find(place, visit.error) for place in ("error.retry_after", "headers.retry-after", "retry_after_ms")
    }
    (place,) = (place for place, wait in waits.items() if wait is not None and float(wait) > 0)
    return f" with `{place}`"


async def _error_before(door: Door, opening: OpenStage) -> str:
    async with opening() as it:
        it.llm.error = Unavailable("the provider is down")
        visit = await it.ask(door, "0")
        assert len(it.llm.requests) == 1
    assert "the provider is down" in str(visit.error)
    return describe_refusal(door, visit, retry=True)


async def _long_prompt(door: Door, opening: OpenStage) -> str:
    """More tokens than the model's context has; counted by the model."""
    async with opening() as it:
        it.llm.error = ContextLengthExceeded.of_counts(5000, 4096)
        visit = await it.ask(door, "0")
        assert len(it.llm.requests) == 1
    assert "5000" in str(visit.error)
    assert "4096" in str(visit.error)
    return describe_refusal(door, visit, retry=False)


REFUSAL_CELLS: Final[tuple[Cell, ...]] = (
    Cell("wrong key", _wrong_key),
    Cell("unknown model", _unknown_model),
    Cell("too large", _too_large),
    Cell("prompt beyond the context", _long_prompt),
    Cell("full queue", _full_queue),
    Cell("error before the first byte", _error_before),
)
