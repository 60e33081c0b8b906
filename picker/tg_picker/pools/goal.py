"""A route's objectives and a request's own -> the objective for the scheduler."""

from collections.abc import Iterable

from tg_picker.core import Objective
from tg_picker.pools.catalogue import Slo


def find_goal(
    slos: Iterable[Slo], first_token: float | None = None, output_token: float | None = None
) -> Objective | None:
    """The objective of a request, each latency with its own share. None = there is none.

    Args:
        slos: the slos of the route; one of a kind.
        first_token: seconds, in place of the route's.
        output_token: seconds, in place of the route's.
    """
    by_kind = {slo.kind: slo for slo in slos}
    first, output = by_kind.get("TimeToFirstToken"), by_kind.get("OutputTokenLatency")
    first_token = first_token or (None if first is None else first.seconds)
    output_token = output_token or (None if output is None else output.seconds)
    if first_token is None and output_token is None:
        return None
    shares = [slo.share for slo in (first, output) if slo is not None] or [Objective().quantile]
    return Objective(first_token, output_token, shares[0], shares[-1])
