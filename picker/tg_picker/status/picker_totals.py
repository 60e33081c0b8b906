"""Records of requests -> metrics: what all pickers of this process counted since it began."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tg_base.telemetry import Cells
from tg_picker.core import CHARACTERS_PER_TOKEN, Endpoint
from tg_picker.pools import Destination, Slo
from tg_picker.status.bounded_label import BoundedLabel
from tg_picker.status.request_record import ANSWERED, RequestRecord
from tg_picker.status.request_series import RequestSeries

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
"""The published outcomes of waiting, by our reasons; all other reasons are `RejectedOther`."""
MAX_NOTED: Final = 64
"""How many requests, and ends of requests, are collected before they are counted: in batches it costs a third."""
_NOWHERE: Final = Destination("", "")


class RouteCount:
    """How the answered requests met an objective of a route.

    Attributes:
        slo: as it was when the last of them ended.
        requests: that were answered.
        kept: those of them that took no longer than promised.
    """

    __slots__ = ("kept", "requests", "slo")

    def __init__(self, slo: Slo) -> None:
        self.slo = slo
        self.requests = self.kept = 0


class PickerTotals:
    """Counts of a process.

    The totals of a closed pool stay, since a counter never goes back. Call `settle` before reading them.

    Args:
        is_configured: whether an operator named this model or adapter; clients' names are bounded.

    Attributes:
        series: by the client's and the server's name of a model.
        picks: attempts to place a request, by outcome, server and port.
        adapters: picks for an adapter that was loaded there, and that had to be loaded; by pool and adapter.
        routes: by route and kind of promise.
        answers: by route.
        queued: how long requests waited for a server, by priority, outcome and pool.
        pick_seconds, hit_ratios, hit_bytes, request_bytes: distributions.
    """

    def __init__(self, is_configured: Callable[[str], bool]) -> None:
        self._models = BoundedLabel(is_configured)
        self._adapters = BoundedLabel(is_configured)
        self._servers = BoundedLabel(lambda _: False)
        self._begun: list[RequestRecord] = []
        self._ended: list[RequestRecord] = []
        self.series: dict[tuple[str, str], RequestSeries] = {}
        self.picks: dict[tuple[str, str, str], int] = {}
        self.adapters: dict[tuple[str, str], list[int]] = {}
        self.routes: dict[tuple[str, str], RouteCount] = {}
        self.answers: Counter[str] = Counter()
        self.queued: dict[tuple[str, str, str], Cells] = {}
        self.pick_seconds = Cells(PICK_SECONDS)
        self.hit_ratios = Cells(HIT_RATIOS)
        self.hit_bytes = Cells(HIT_BYTES)
        self.request_bytes = Cells(REQUEST_BYTES)

    def begin(self, record: RequestRecord) -> None:
        """Count a decision, and of a pick later the end."""
        record.on_end = self._end
        self._begun.append(record)
        if len(self._begun) >= MAX_NOTED:
            self.settle()

    def refuse(self, record: RequestRecord) -> None:
        """Count a request that was refused before anything was picked."""
        series = self._find(record)
        series.count_request(record.priority)
        series.count_error(record.status)

    def settle(self) -> None:
        """Count what was noted."""
        begun, self._begun = self._begun, []
        ended, self._ended = self._ended, []
        if begun:
            self._count_begun(begun)
        if ended:
            self._count_ended(ended)

    def _end(self, record: RequestRecord) -> None:
        self._ended.append(record)
        if len(self._ended) >= MAX_NOTED:
            self.settle()

    def _count_begun(self, records: Sequence[RequestRecord]) -> None:
        self.pick_seconds.observe_all([each.pick_seconds for each in records])
        for record in records:
            record.counted_in = series = self._find(record)
            if record.waited is not None:
                series.count_request(record.priority)
            if record.endpoint is not None:
                series.running += 1
                if record.adapter is not None:
                    self._count_adapter(record, record.adapter)
                continue
            series.count_error(record.status)
            destination = record.facts.destination or _NOWHERE
            for slo in destination.slos:
                # A route whose requests are all refused is shown as well.
                self._find_route(destination.route, slo)
        self._count_waits(records)
        self._count_picks([each.endpoint for each in records])

    def _count_ended(self, records: Sequence[RequestRecord]) -> None:
        self.request_bytes.observe_all([each.facts.body_bytes for each in records])
        prompted = [(each.cached_tokens, each.prompt_tokens) for each in records if each.prompt_tokens]
        self.hit_ratios.observe_all([cached / tokens for cached, tokens in prompted])
        self.hit_bytes.observe_all([cached * CHARACTERS_PER_TOKEN for cached, _ in prompted])
        answered: defaultdict[RequestSeries, list[RequestRecord]] = defaultdict(list)
        for record in records:
            # Use the label of its beginning, even if an operator has configured its model since.
            series = record.counted_in if isinstance(record.counted_in, RequestSeries) else self._find(record)
            series.running -= 1
            if record.failed:
                series.count_error(record.status)
            if record.outcome == ANSWERED and not record.lost:
                answered[series].append(record)
        for series, some in answered.items():
            series.observe(some)
            for record in some:
                if (destination := record.facts.destination) is not None and destination.route:
                    self.answers[destination.route] += 1
                    self._judge_all(record, destination)

    def _judge_all(self, record: RequestRecord, destination: Destination) -> None:
        for slo in destination.slos:
            is_first = slo.kind == "TimeToFirstToken"
            seconds = record.first_token_seconds if is_first else record.output_token_seconds
            if seconds is not None:
                self._judge(destination.route, slo, seconds)

    def _judge(self, route: str, slo: Slo, seconds: float) -> None:
        count = self._find_route(route, slo)
        count.slo = slo
        count.requests += 1
        count.kept += seconds <= slo.seconds

    def _find_route(self, route: str, slo: Slo) -> RouteCount:
        count = self.routes.get((route, slo.kind))
        if count is None:
            count = self.routes[route, slo.kind] = RouteCount(slo)
        return count

    def _count_picks(self, picked: Sequence[Endpoint | None]) -> None:
        servers = [("", "") if each is None else (each.name or each.address, each.address) for each in picked]
        for (name, address), number in Counter(servers).items():
            place = (self._servers.bound(name), address.rpartition(":")[2])
            key = ("success", *place) if address else ("failure", "", "")
            self.picks[key] = self.picks.get(key, 0) + number

    def _count_waits(self, records: Sequence[RequestRecord]) -> None:
        waited: defaultdict[tuple[int, str, str], list[float]] = defaultdict(list)
        for record in records:
            # Without a body it goes past the queue.
            if record.facts.destination is not None and record.waited is not None:
                outcome = DISPATCHED if record.endpoint is not None else record.reasons[0]
                waited[record.priority, outcome, record.facts.destination.pool].append(record.waited)
        for (priority, reason, pool), seconds in waited.items():
            outcome = reason if reason == DISPATCHED else OUTCOMES.get(reason, "RejectedOther")
            key = (str(priority), outcome, pool)
            cells = self.queued.get(key)
            if cells is None:
                cells = self.queued[key] = Cells(QUEUE_SECONDS)
            cells.observe_all(seconds)

    def _count_adapter(self, record: RequestRecord, adapter: str) -> None:
        key = ((record.facts.destination or _NOWHERE).pool, self._adapters.bound(adapter))
        counts = self.adapters.get(key)
        if counts is None:
            counts = self.adapters[key] = [0, 0]
        counts[record.loads] += 1

    def _find(self, record: RequestRecord) -> RequestSeries:
        facts = record.facts
        names = (facts.model, (facts.destination or _NOWHERE).model)
        # Nearly all names are labels as they are.
        found = self.series.get(names)
        if found is not None:
            return found
        bound = self._models.bound
        return self.series.setdefault((bound(names[0]), bound(names[1])), RequestSeries())
