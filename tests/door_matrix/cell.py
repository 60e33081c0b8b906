"""One column of the matrix, and how it is run for one door."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.door_matrix.door import Door
from tests.door_matrix.stage import OpenStage
from tests.door_matrix.visit import Visit


@dataclass(frozen=True)
class Cell:
    """One column.

    Attributes:
        name: its head in the table.
        run: asks through a door, holds what must hold, and returns what the table says of it.
        everywhere: whether it is run over Pulsar too.
    """

    name: str
    run: Callable[[Door, OpenStage], Awaitable[str]]
    everywhere: bool = False


def describe_refusal(door: Door, visit: Visit, *, retry: bool) -> str:
    """How a request was refused: before a byte of its answer, in the door's shape, with the advice that it owes."""
    assert not visit.text, visit
    assert not visit.whole, visit
    assert not visit.broken, visit
    advice = {"true": ", retry", "false": "", None: ""}[visit.headers.get("x-should-retry")]
    if door.advises:
        assert visit.headers["x-should-retry"] == ("true" if retry else "false")
    else:
        assert "x-should-retry" not in visit.headers
    if visit.status == 101:
        assert visit.open, visit
        return f"message `{visit.kind}`"
    if door.refuses_in_events and visit.status == 200:
        return f"200, event `{visit.kind}`"
    assert visit.status >= 400, visit
    return f"{visit.status} `{visit.kind}`{advice}" if visit.kind else f"{visit.status} at the handshake"


def describe_failure(door: Door, visit: Visit) -> str:
    """How an answer failed of which something was sent: in an event or message of the door, and never as a whole."""
    assert visit.kind, visit
    assert not visit.whole, visit
    assert visit.broken is door.breaks, visit
    if door.way == "socket":
        assert visit.open, visit
        return f"message `{visit.kind}`, socket stays"
    return f"event `{visit.kind}`, {'broken' if visit.broken else 'orderly'} end"
