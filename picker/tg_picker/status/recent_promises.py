"""Boards -> how each route kept its promises in the last minute, where somebody watches them."""

from collections.abc import Iterable

from tg_picker.core import Attained
from tg_picker.status.pool_board import PoolBoard


def read_recent(boards: Iterable[PoolBoard]) -> dict[tuple[str, str], Attained]:
    """By route and kind of promise, of all boards together; without what nothing was counted of."""
    found: dict[tuple[str, str], Attained] = {}
    for board in boards:
        for route, watched in board.attainment().items():
            kinds = {"TimeToFirstToken": watched.first_token, "OutputTokenLatency": watched.output_token}
            for kind, attained in kinds.items():
                if attained.total:
                    before = found.get((route, kind), Attained(0, 0))
                    found[route, kind] = Attained(before.kept + attained.kept, before.total + attained.total)
    return found
