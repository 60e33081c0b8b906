"""Records of requests -> metrics: what all pickers of this process counted since it began."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tg_base.instances import CHARACTERS_PER_TOKEN, Pick, Rejection
from tg_base.pool_status.bounded_label import BoundedLabel
from tg_base.pool_status.request_record import ANSWERED, RequestRecord
from tg_base.pool_status.request_series import RequestSeries
from tg_base.pools import Destination, Promise
from tg_base.telemetry import Cells

PICK_SECONDS: Final = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
HIT_RATIOS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
HIT_BYTES: Final = (0.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0)
REQUEST_BYTES: Final = tuple(float(64 * 4**power) for power in range(11))
QUEUE_SECONDS: Final = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
DISPATCHED: Final = "Dispatched"
OUTCOMES: Final[Mapping[str, str]] = {
    "saturated": "RejectedCapacity",
    "objective-out-of-reach": "RejectedCapacity",
    "queue-full": "RejectedCapacity",
    "no-endpoints": "RejectedNoEndpoints",
    "expired": "EvictedTTL",
    "displaced": "EvictedOther",
}
"""The published words for how waiting ended, by our reasons; the others are `RejectedOther`."""
_NOWHERE: Final = Destination("", "")


class RouteCount:
    """How a promise of a route was kept by the requests that were answered.

    Attributes:
        promise: as it was when the last of them ended.
        requests: that were answered.
        kept: those of them that took no longer than promised.
    """

    __slots__ = ("kept", "promise", "requests")

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.requests = self.kept = 0


class PickerTotals:
    """Counts of a process. A closed pool's stay: a counter never goes back.

    Args:
        is_configured: whether an operator named this model or adapter; clients' names are bounded.

    Attributes:
        series: by the client's and the server's name of a model.
        picks: attempts to place a request, by outcome, server and port.
        adapters: picks for an adapter that was loaded there, and that had to be loaded; by pool and adapter.
        routes: by route and kind of promise.
        queued: how long requests waited for a server, by priority, outcome and pool.
        pick_seconds, hit_ratios, hit_bytes, request_bytes: distributions.
    """

    def __init__(self, is_configured: Callable[[str], bool]) -> None:
        self._models = BoundedLabel(is_configured)
        self._adapters = BoundedLabel(is_configured)
        self._servers = BoundedLabel(lambda _: False)
        self.series: dict[tuple[str, str], RequestSeries] = {}
        self.picks: dict[tuple[str, str, str], int] = {}
        self.adapters: dict[tuple[str, str], list[int]] = {}
        self.routes: dict[tuple[str, str], RouteCount] = {}
        self.queued: dict[tuple[str, str, str], Cells] = {}
        self.pick_seconds = Cells(PICK_SECONDS)
        self.hit_ratios = Cells(HIT_RATIOS)
        self.hit_bytes = Cells(HIT_BYTES)
        self.request_bytes = Cells(REQUEST_BYTES)

    def begin(
        self, record: RequestRecord, made: Pick | Rejection, seconds: float, *, again: bool, waited: float = 0.0
    ) -> None:
        """Count a decision, and of a pick later the end. What can wait is counted then: a pick should cost little.

        Args:
            record: of the request.
            made: what was decided.
            seconds: that the decision took.
            again: whether the request was counted before, and goes to another server now.
            waited: seconds from its arrival to the decision.
        """
        series = self._find(record)
        if not again:
            series.count_request(record.priority)
            self._count_wait(record, made, waited)
        self.pick_seconds.observe(seconds)
        if isinstance(made, Rejection):
            series.count_error(made.status)
            destination = record.facts.destination or _NOWHERE
            for promise in destination.promises:
                # A route whose requests are all refused is shown as well.
                self._find_route(destination.route, promise)
            key = ("failure", "", "")
        else:
            series.running += 1
            record.on_end = partial(self._end, series)
            key = ("success", self._servers.bound(record.server), made.endpoint.address.rpartition(":")[2])
            if record.adapter is not None:
                self._count_adapter(record, record.adapter)
        self.picks[key] = self.picks.get(key, 0) + 1

    def refuse(self, record: RequestRecord) -> None:
        """Count a request that was refused before anything was picked."""
        series = self._find(record)
        series.count_request(record.priority)
        series.count_error(record.status)

    def _end(self, series: RequestSeries, record: RequestRecord) -> None:
        series.running -= 1
        self.request_bytes.observe(record.facts.body_bytes)
        if record.prompt_tokens:
            self.hit_ratios.observe(record.cached_tokens / record.prompt_tokens)
            self.hit_bytes.observe(record.cached_tokens * CHARACTERS_PER_TOKEN)
        if record.failed:
            series.count_error(record.status)
        if record.outcome != ANSWERED or record.lost:
            return
        series.observe(record)
        destination = record.facts.destination or _NOWHERE
        for promise in destination.promises:
            is_first = promise.kind == "TimeToFirstToken"
            seconds = record.first_token_seconds if is_first else record.output_token_seconds
            if seconds is not None:
                self._judge(destination.route, promise, seconds)

    def _judge(self, route: str, promise: Promise, seconds: float) -> None:
        count = self._find_route(route, promise)
        count.promise = promise
        count.requests += 1
        count.kept += seconds <= promise.seconds

    def _find_route(self, route: str, promise: Promise) -> RouteCount:
        count = self.routes.get((route, promise.kind))
        if count is None:
            count = self.routes[route, promise.kind] = RouteCount(promise)
        return count

    def _count_wait(self, record: RequestRecord, made: Pick | Rejection, waited: float) -> None:
        if record.facts.destination is None:
            # Without a body it goes past the queue.
            return
        outcome = DISPATCHED if isinstance(made, Pick) else OUTCOMES.get(made.reason, "RejectedOther")
        key = (str(record.priority), outcome, record.facts.destination.pool)
        cells = self.queued.get(key)
        if cells is None:
            cells = self.queued[key] = Cells(QUEUE_SECONDS)
        cells.observe(waited)

    def _count_adapter(self, record: RequestRecord, adapter: str) -> None:
        key = ((record.facts.destination or _NOWHERE).pool, self._adapters.bound(adapter))
        counts = self.adapters.get(key)
        if counts is None:
            counts = self.adapters[key] = [0, 0]
        counts[record.loads] += 1

    def _find(self, record: RequestRecord) -> RequestSeries:
        facts, bound = record.facts, self._models.bound
        names = (bound(facts.model), bound((facts.destination or _NOWHERE).model))
        found = self.series.get(names)
        if found is None:
            found = self.series[names] = RequestSeries()
        return found
