"""Placements and reports -> policies: the state of one server, by our own counts and by its reports."""

from collections import deque
from collections.abc import Set as AbstractSet

from tg_picker.core.interface import BLOCK_TOKENS, Endpoint, InstanceRequest, LoadReport
from tg_picker.core.state.active_prefixes import ActivePrefixes
from tg_picker.core.state.prefix_owners import PrefixOwners
from tg_picker.core.state.resident_adapters import ResidentAdapters
from tg_picker.core.state.server_speed import LOAD_SECONDS, EngineSpeed, ServerSpeed

MAX_UNSEEN = 16
"""Requests that a server may get between two scrapes before each further one counts as queued."""
_MAX_REMEMBERED = 1_024
"""Placements and first tokens that are remembered, to tell whether they came before or after a scrape."""


class ServerState:
    """The state of one server. Policies read it; placements and reports change it.

    Attributes:
        endpoint: the server.
        requests: requests placed here that have not ended.
        unstarted: those of them without a first token.
        uncached_tokens: tokens of the unstarted requests' prompts that the server has to compute.
        room_tokens: tokens of these prompts that no other request in flight uses, whether cached or not.
        kv_tokens: tokens of KV cache that all requests placed here will probably need in addition.
        ready_at: when adapters that are being loaded will probably be ready; removed at their first token.
        loads_end_at: when all loads that need no free slot will probably have ended.
        load: seconds of pending work, roughly; used to find the least loaded servers.
        adapter_requests: the number of requests placed here, by adapter, without zeros.
        cache_tokens: the tokens that its KV cache holds; None = never reported.
        concurrency_limit: see `limit_concurrency`; infinite = no first token was late.
        seats: requests that its engine runs concurrently; infinite = not known.
        seats_shown_at: when a request was last overdue while as many as `seats` ran.
        waiting_since: placements that wait only for the engine's computation, each with the time when it began to wait.
        adapters: those that the server probably has loaded.
        prefixes: the blocks that it has cached, as assumed or reported.
        active: the prompt prefixes in use.
        speed: its speed, learnt from its answers.
        report: its last report; None = there is none, or it is too old.
        is_stale: whether its last report is too old.
        is_cold: whether, as far as is known, no answer has begun since it started.
        started_at: when its process began, as last reported; None = never reported.
    """

    def __init__(self, endpoint: Endpoint, engine: EngineSpeed | None = None) -> None:
        self.endpoint = endpoint
        self.requests = self.unstarted = self.uncached_tokens = self.kv_tokens = self.room_tokens = 0
        self._placed_at, self._begun_at = deque[float](maxlen=_MAX_REMEMBERED), deque[float](maxlen=_MAX_REMEMBERED)
        self.load = 0.0
        self.concurrency_limit = self.seats = float("inf")
        self.seats_shown_at = 0.0
        self.waiting_since: dict[object, float] = {}
        self.loads_end_at = 0.0
        self.ready_at: dict[str, float] = {}
        self.adapter_requests: dict[str, int] = {}
        self.adapters = ResidentAdapters()
        self.prefixes = PrefixOwners()
        self.active = ActivePrefixes()
        self.speed = ServerSpeed(engine)
        self.report: LoadReport | None = None
        self.is_stale = False
        self.is_cold = True
        self.started_at: float | None = None
        self.cache_tokens: int | None = None
        self._reported_tokens: float | None = None
        self._sent_back_tokens = 0.0
        self._unreported_tokens = 0.0

    @property
    def has_spare_slot(self) -> bool:
        """Whether another adapter may run at the same time as those of the requests placed here."""
        return not self.adapters.slots or len(self.adapter_requests) < self.adapters.slots

    @property
    def running(self) -> int:
        """Requests placed here that have begun to answer."""
        return self.requests - self.unstarted

    @property
    def queued(self) -> int:
        """Requests that wait, as reported; without a report, our own requests without a first token."""
        report = self.report
        return self.unstarted if report is None or report.queued is None else report.queued

    @property
    def queue(self) -> int:
        """Requests queued there: as reported, corrected by what was sent and what began since; 0 if it reports none."""
        # A few requests go straight into the batch; only further ones queue.
        return self._count_queue(MAX_UNSEEN)

    @property
    def backlog(self) -> int:
        """As `queue`, but every request that was sent since the report counts as queued until it begins."""
        return self._count_queue(0)

    def _count_queue(self, unseen: int) -> int:
        report = self.report
        if report is None or report.queued is None:
            return 0
        return max(report.queued + max(len(self._placed_at) - unseen, 0) - len(self._begun_at), 0)

    @property
    def kv_usage(self) -> float:
        """The share of the KV cache in use, as reported; 0 without a report."""
        report = self.report
        return 0.0 if report is None or report.kv_usage is None else report.kv_usage

    @property
    def used_tokens(self) -> float:
        """Tokens of KV cache in use or queued: as reported, plus ours since then; without a report, only ours.

        Placements since the report are added, and placements that ended since are subtracted. Of the requests without a
        first token, only queued ones are added, because the report includes the others.
        """
        # Only the report accounts for blocks that requests share.
        reported = self._reported_tokens
        if reported is None:
            return self.kv_tokens
        used = reported + self._sent_back_tokens + self._unreported_tokens
        return max(used, 0.0)

    @property
    def active_adapters(self) -> AbstractSet[str]:
        """Adapters with a running or queued request, as reported; without a report, those with a request of ours."""
        report = self.report
        if report is None or report.adapters is None:
            return self.adapter_requests.keys()
        reported = report.adapters
        return reported.active | reported.waiting if reported.waiting else reported.active

    def observe(self, report: LoadReport) -> None:
        """Take the server's report."""
        self.report = report
        self.is_stale = False
        self._count_seats(report)
        # The report arrives some time after the scrape: it does not include what happened in between.
        for times in (self._placed_at, self._begun_at):
            while times and times[0] <= report.read_at:
                times.popleft()
        if report.adapters is not None:
            self.adapters.observe(report.adapters, report.read_at, self.adapter_requests)
        self._reported_tokens = None
        if report.blocks and report.block_tokens:
            self.cache_tokens = tokens = report.blocks * report.block_tokens
            self._reported_tokens = None if report.kv_usage is None else report.kv_usage * tokens
            self._sent_back_tokens = self._count_sent_back(report)
            self._unreported_tokens = self._count_unreported(report)
            self.prefixes.resize(tokens // BLOCK_TOKENS)

    def expire(self) -> None:
        """Forget a report that is too old."""
        self.report = self._reported_tokens = None
        self.is_stale = True

    def place(
        self,
        request: InstanceRequest,
        uncached: int,
        expected: int,
        now: float,
        *,
        room: int | None = None,
        marks: tuple[int, ...] = (),
    ) -> bool:
        """Count a request that was placed here.

        Returns whether the request may wait for more than the computation of prompts.

        Args:
            request: the placed request.
            uncached: tokens of its prompt that the server has to compute.
            expected: expected tokens of its answer.
            now: seconds on the scheduler's clock.
            room: tokens of its prompt that no other request uses; None = the same as `uncached`.
            marks: the marks of its prompt.
        """
        room = uncached if room is None else room
        capacity = self.cache_tokens
        is_full = capacity is not None and self.used_tokens + room > capacity
        loads = request.adapter is not None and request.adapter not in self.adapters.used_at
        self.requests += 1
        self.unstarted += 1
        self._placed_at.append(now)
        self.uncached_tokens += uncached
        self.room_tokens += room
        self._unreported_tokens += room
        self.active.use(marks)
        if request.adapter is not None:
            counts = self.adapter_requests
            if loads:
                wait = self.drain_seconds(expected * self.speed.output_token_seconds)
                self.ready_at[request.adapter] = ready = max(now + wait, self.loads_end_at) + LOAD_SECONDS
                if not wait:
                    self.loads_end_at = ready
            counts[request.adapter] = counts.get(request.adapter, 0) + 1
            self.adapters.use(request.adapter, now, counts)
        self.prefixes.add(request.prefix)
        self.kv_tokens += uncached + expected
        self._weigh()
        return is_full or bool(self.ready_at)

    def drain_seconds(self, residence: float) -> float:
        """How long an adapter without requests here waits for a slot, if a request takes `residence` seconds."""
        slots, busy = self.adapters.slots, self.adapter_requests
        if not slots or len(busy) < slots:
            return 0.0
        # An answer may end at any time. Slots with a single request become free next, one after the other.
        single = sum(count == 1 for adapter, count in busy.items() if adapter not in self.ready_at)
        return residence * (len(busy) - slots + 1) / max(single, 1)

    def start(self, adapter: str | None, uncached: int, now: float, room: int | None = None) -> None:
        """Count a request's first token. The arguments are those of its placement, and the time."""
        if adapter is not None:
            self.ready_at.pop(adapter, None)
            if not self.ready_at:
                self.loads_end_at = 0.0
        self.unstarted -= 1
        self.is_cold = False
        self._begun_at.append(now)
        self.uncached_tokens -= uncached
        self.room_tokens -= uncached if room is None else room
        self._weigh()

    def limit_concurrency(self, beside: int, *, is_late: bool) -> None:
        """Learn how many answers run concurrently before requests that are not sheddable begin late.

        A late request sets the limit to the number that runs now. After N timely requests, a limit of N rises by one.

        Args:
            beside: answers that run at the same time as one that has begun; at least 1 if that is late.
            is_late: whether it began late because of other requests on the server.
        """
        limit = self.concurrency_limit
        self.concurrency_limit = beside if is_late else limit + 1 / limit

    def release(
        self,
        adapter: str | None,
        prompt_tokens: int,
        uncached: int,
        expected: int,
        marks: tuple[int, ...] = (),
        *,
        answered: int = 0,
    ) -> None:
        """Count the end of a started request. The arguments are its placement's, and the tokens of its answer."""
        self.requests -= 1
        self.kv_tokens -= uncached + expected
        self.active.end(marks)
        still_used = self.active.still_used(marks, (prompt_tokens - uncached) // BLOCK_TOKENS)
        self._unreported_tokens -= max(prompt_tokens - BLOCK_TOKENS * still_used, 0) + answered
        self._weigh()
        if adapter is not None:
            left = self.adapter_requests[adapter] - 1
            if left:
                self.adapter_requests[adapter] = left
            else:
                del self.adapter_requests[adapter]

    def restart(self) -> None:
        """Forget what a server loses when it restarts. Requests placed here count until they end."""
        self.report = self._reported_tokens = None
        self.adapters.clear()
        self.ready_at.clear()
        self.loads_end_at = 0.0
        self.is_cold = True
        self.seats = float("inf")
        # Its cache events also reveal the new process, perhaps before this call, so reported blocks are kept.
        self.prefixes.blocks.clear()

    def _count_seats(self, report: LoadReport) -> None:
        """Learn the seats from a report during which a request is overdue: the engine is full with what runs now.

        If more requests run later, the engine was not full, but stood still for a while.
        """
        # A cold server does not begin anything for a while, whatever runs there.
        if report.running and not self.is_cold:
            waited = report.read_at - next(iter(self.waiting_since.values()), report.read_at)
            is_full = report.queued and self.speed.is_overdue(waited, self.uncached_tokens)
            if is_full:
                self.seats, self.seats_shown_at = report.running, report.read_at
            elif report.running > self.seats:
                self.seats = float("inf")

    def _count_sent_back(self, report: LoadReport) -> float:
        """Tokens of queued requests, other than our unstarted ones, each estimated as large as a running request.

        A full server sends its youngest requests back to its queue. The cache that they held looks free, but they will
        run again before any new request.
        """
        if self._reported_tokens is None or not report.queued or not report.running:
            return 0.0
        return max(report.queued - self.unstarted, 0) * self._reported_tokens / report.running

    def _count_unreported(self, report: LoadReport) -> float:
        """Tokens of prompts that wait for cache, so the report does not include them. Servers take prompts in order."""
        if report.queued is None or not self.unstarted:
            return self.room_tokens
        return self.room_tokens * min(report.queued / self.unstarted, 1.0)

    def _weigh(self) -> None:
        speed = self.speed
        waiting = self.unstarted * speed.fixed_seconds + self.uncached_tokens * speed.prompt_token_seconds
        self.load = waiting + self.requests * speed.output_token_seconds
