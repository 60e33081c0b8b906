"""Records of requests -> metrics: the counts of all pickers of this process since it began."""

from collections import Counter as Counts
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from tg_base.telemetry import BoundedLabel
from tg_picker.core import CHARACTERS_PER_TOKEN, Attained, Endpoint
from tg_picker.pools import Destination, Slo, metrics
from tg_picker.status.request_record import ANSWERED, RequestRecord

ERROR_CODES: Final[Mapping[int, str]] = {
    400: "BadRequest",
    404: "NotFound",
    413: "BadRequest",
    429: "ResourceExhausted",
    503: "ServiceUnavailable",
}
"""Published names of errors by status; for other statuses the error counts as a server's."""
DISPATCHED: Final = "Dispatched"
OUTCOMES: Final[Mapping[str, str]] = {
    "saturated": "RejectedCapacity",
    "objective-out-of-reach": "RejectedCapacity",
    "queue-full": "RejectedCapacity",
    "no-endpoints": "RejectedNoEndpoints",
    "expired": "EvictedTTL",
    "displaced": "EvictedOther",
}
"""Published outcomes of waiting, by our reasons; every other reason is `RejectedOther`."""
MAX_NOTED: Final = 64
"""How many begun or ended requests are collected before they are counted, so that counting delays no pick."""
_NOWHERE: Final = Destination("", "")


class PickerTotals:
    """The counts of a process.

    The counts of a closed pool remain, because a counter may not decrease. Call `settle` before reading them.

    Args:
        is_configured: whether an operator named a model or adapter; the number of other names is bounded.

    Attributes:
        registry: the metrics of requests and picks, under the new names.
        routes: by route and kind of objective, how many answers met the objective that was current when they ended.
        answers: the number of answers by route.
    """

    def __init__(self, is_configured: Callable[[str], bool]) -> None:
        self._models = BoundedLabel(is_configured)
        self._adapters = BoundedLabel(is_configured)
        self._servers = BoundedLabel()
        self._noted: list[tuple[Callable[[RequestRecord], None], RequestRecord]] = []
        self.registry = CollectorRegistry()
        self.routes: dict[tuple[str, str], tuple[Slo, Attained]] = {}
        self.answers: Counts[str] = Counts()
        self._requests = metrics.REQUESTS.counter(self.registry)
        self._errors = metrics.ERRORS.counter(self.registry)
        self._missed = metrics.MISSED.counter(self.registry)
        self._renamed = metrics.RENAMED.counter(self.registry)
        self._running = metrics.RUNNING.gauge(self.registry)
        self._answered = {name: each.histogram(self.registry) for name, each in metrics.DISTRIBUTIONS.items()}
        self._sizes = metrics.SIZES.histogram(self.registry)
        self._pick_seconds = metrics.PICK_SECONDS.histogram(self.registry)
        self._hit_ratios = metrics.HIT_RATIOS.histogram(self.registry)
        self._hit_bytes = metrics.HIT_BYTES.histogram(self.registry)
        self._waits = metrics.WAITS.histogram(self.registry)
        self._decided = metrics.DECIDED.counter(self.registry)
        self._picks = metrics.PICKS.counter(self.registry)
        self._adapter_picks = metrics.ADAPTER_PICKS.counter(self.registry)

    def begin(self, record: RequestRecord) -> None:
        """Count a decision; if it is a pick, its end is counted later."""
        record.on_end = partial(self._note, self._count_ended)
        self._note(self._count_begun, record)

    def refuse(self, record: RequestRecord) -> None:
        """Count a request that was refused before a server could be picked."""
        model = self._find(record)
        self._count_request(record, model)
        self._count_error(record, model)

    def settle(self) -> None:
        """Count the collected records."""
        noted, self._noted = self._noted, []
        for count, record in noted:
            count(record)

    def _note(self, count: Callable[[RequestRecord], None], record: RequestRecord) -> None:
        self._noted.append((count, record))
        if len(self._noted) >= MAX_NOTED:
            self.settle()

    def _count_begun(self, record: RequestRecord) -> None:
        self._pick_seconds.observe(record.pick_seconds)
        record.counted_as = model = self._find(record)
        destination = record.facts.destination or _NOWHERE
        if record.waited is not None:
            self._count_request(record, model)
        if record.endpoint is not None:
            self._running.labels(model[0]).inc()
            if record.request.adapter is not None:
                result = "load" if record.loads else "loaded"
                self._adapter_picks.labels(destination.pool, self._adapters.bound(record.request.adapter), result).inc()
        else:
            self._count_error(record, model)
            for slo in destination.slos:
                # Show a route even if all its requests are refused.
                self._find_route(destination.route, slo)
        self._count_wait(record)
        self._count_pick(record.endpoint)

    def _count_request(self, record: RequestRecord, model: tuple[str, str]) -> None:
        self._requests.labels(*model, record.request.priority).inc()
        if model[1] and model[0] != model[1]:
            self._renamed.labels(*model).inc()

    def _count_error(self, record: RequestRecord, model: tuple[str, str]) -> None:
        self._errors.labels(*model, ERROR_CODES.get(record.status, "ModelServerError")).inc()

    def _count_ended(self, record: RequestRecord) -> None:
        self._sizes.observe(record.facts.body_bytes)
        if record.request.prompt_tokens:
            self._hit_ratios.observe(record.cached_tokens / record.request.prompt_tokens)
            self._hit_bytes.observe(record.cached_tokens * CHARACTERS_PER_TOKEN)
        # Use the labels under which its beginning was counted, even if its model was configured since.
        model = record.counted_as
        self._running.labels(model[0]).dec()
        if record.failed:
            self._count_error(record, model)
        # Only answered requests are in the distributions, so that failures with invented names stay cheap.
        if record.outcome == ANSWERED:
            self._count_answer(record, model)

    def _count_answer(self, record: RequestRecord, model: tuple[str, str]) -> None:
        usage, first, pace = record.usage, record.first_token_seconds, record.output_token_seconds
        seconds, tokens = record.seconds or 0.0, (usage.output_tokens if usage else None) or None
        amounts = {
            # The first token of an answer that came whole was not observed.
            "request_ttft_seconds": first,
            "request_streaming_tpot_seconds": pace,
            "request_duration_seconds": seconds,
            "request_ntpot_seconds": seconds / tokens if tokens else None,
            "request_input_tokens": usage.prompt_tokens if usage else None,
            "request_output_tokens": tokens,
            "request_cached_tokens": usage.cached_tokens if usage else None,
        }
        for name, amount in amounts.items():
            if amount is not None:
                self._answered[name].labels(*model).observe(amount)
        if (goal := record.request.objective) is not None:
            for kind, took, promised in (("ttft", first, goal.first_token), ("tpot", pace, goal.output_token)):
                if took is not None and promised is not None and took > promised:
                    self._missed.labels(*model, kind).inc()
        if (destination := record.facts.destination) is not None and destination.route:
            self.answers[destination.route] += 1
            for slo in destination.slos:
                self._judge(destination.route, slo, first if slo.kind == "TimeToFirstToken" else pace)

    def _judge(self, route: str, slo: Slo, seconds: float | None) -> None:
        if seconds is not None:
            before = self._find_route(route, slo)
            self.routes[route, slo.kind] = slo, Attained(before.kept + (seconds <= slo.seconds), before.total + 1)

    def _find_route(self, route: str, slo: Slo) -> Attained:
        return self.routes.setdefault((route, slo.kind), (slo, Attained(0, 0)))[1]

    def _count_pick(self, picked: Endpoint | None) -> None:
        if picked is None:
            self._picks.labels("failure", "", "").inc()
        else:
            name, port = self._servers.bound(picked.name or picked.address), picked.address.rpartition(":")[2]
            self._picks.labels("success", name, port).inc()

    def _count_wait(self, record: RequestRecord) -> None:
        # A request without a body does not pass through the queue.
        if record.facts.destination is not None and record.waited is not None:
            refused = OUTCOMES.get(record.reasons[0], "RejectedOther") if record.endpoint is None else ""
            outcome = refused or DISPATCHED
            self._waits.labels(record.request.priority, outcome, record.facts.destination.pool).observe(record.waited)
            self._decided.labels(outcome, record.request.priority).inc()

    def _find(self, record: RequestRecord) -> tuple[str, str]:
        """The labels of its model: as the client names it, and as the server names it."""
        facts, bound = record.facts, self._models.bound
        return bound(facts.model), bound((facts.destination or _NOWHERE).model)
