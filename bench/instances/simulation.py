"""One load, one policy, one seed: a discrete-event simulation in virtual time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

from msgspec.structs import replace

from bench.instances.baselines.policies import make_policy
from bench.instances.informed import Informed
from bench.instances.job import Job
from bench.instances.paged_server import PagedServer
from bench.instances.pickers import Pickers
from bench.instances.server_model import ServerModel
from bench.instances.simulated_server import SimulatedServer
from tg_picker.core import (
    Endpoint,
    FlowControl,
    InstanceRequest,
    InstanceUsage,
    Objective,
    Pick,
    Policy,
    QueueLimits,
    Rejection,
    Scheduler,
)

SCRAPE_SECONDS = 0.05
DRAIN_SECONDS = 20.0
"""After the last arrival; what has no first token by then counts as so late."""
RETRY_SECONDS = 1.0
"""Until a session whose request was refused or lost goes on with its next."""


@dataclass(frozen=True)
class Crash:
    """A server that dies and comes back empty."""

    at: float
    until: float
    server: int


@dataclass(frozen=True)
class Stall:
    """A server that stands still for a while."""

    at: float
    seconds: float
    server: int


@dataclass
class Load:
    """What arrives at which servers.

    Attributes:
        servers: their constants.
        seconds: of arrivals.
        jobs: those that arrive whatever happens, by arrival.
        follow: the next request of a session, once one has ended.
        crashes: of servers.
        stalls: of servers.
        scrape_seconds: from one look at the servers to the next.
        scrape_age: seconds from a look until the scheduler knows of it.
    """

    servers: list[ServerModel]
    seconds: float
    jobs: list[Job]
    follow: Callable[[Job, float], Job | None] | None = None
    crashes: list[Crash] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    scrape_seconds: float = SCRAPE_SECONDS
    scrape_age: float = 0.0


@dataclass
class Outcome:
    """What came of it. `overtaken` are placements of sheddable requests while another one waited."""

    jobs: list[Job]
    adapter_loads: int
    ended_at: float
    unfinished: int
    overtaken: int


class Simulation:
    """Runs a load under a policy.

    Args:
        load: used up by the run.
        policy: a name, "informed", or a policy.
        admission: a name.
        seed: of the scheduler's ties.
        warm_up: seconds at the beginning whose adapter loads do not count.
        waits: whether requests wait, in bands, before servers without room; not with several pickers.
        pickers: schedulers among which the requests are spread.
        shared: whether these tell each other what they place.
        make_server: from its constants.
    """

    def __init__(
        self,
        load: Load,
        policy: str | Policy,
        admission: str,
        seed: int,
        warm_up: float,
        *,
        waits: bool = False,
        pickers: int = 1,
        shared: bool = True,
        make_server: Callable[[ServerModel], SimulatedServer | PagedServer] = SimulatedServer,
    ) -> None:
        self._load = load
        self._warm_up = warm_up
        self.servers = [make_server(model) for model in load.servers]
        self._endpoints = tuple(Endpoint(f"10.0.0.{index}:8000", f"s{index}") for index in range(len(self.servers)))
        self._by_address = dict(zip((each.address for each in self._endpoints), self.servers, strict=True))
        self.now = 0.0
        rule = Informed(self._by_address, lambda: self.now) if policy == "informed" else make_policy(policy)
        alone = Scheduler(rule, admission, random=Random(f"ties {seed}"))
        self._flow_control = FlowControl(alone, QueueLimits()) if waits else None
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.scheduler: Scheduler | Pickers = alone
        if pickers > 1:
            self.scheduler = Pickers(pickers, rule, admission, seed, self._endpoints, timer=self, shared=shared)
        self._up = self._endpoints
        self._jobs: list[Job] = []
        self._open = self._overtaken = 0

    def run(self) -> Outcome:
        """Run until all ended, or DRAIN_SECONDS after the last arrival."""
        for job in self._load.jobs:
            self.at(job.arrival, lambda job=job: self._arrive(job))  # type: ignore[misc]
        for crash in self._load.crashes:
            self.at(crash.at, lambda crash=crash: self._crash(crash))  # type: ignore[misc]
        for stall in self._load.stalls:
            self.at(stall.at, partial(self.servers[stall.server].stall, stall.seconds))
        self.at(0.0, self._scrape)
        early_loads = 0
        end = self._load.seconds + DRAIN_SECONDS
        while self._events and self._events[0][0] <= end:
            before = self.now
            self.now, _, act = heappop(self._events)
            if before < self._warm_up <= self.now:
                early_loads = self._loads()
            act()
            if self._flow_control is not None:
                self._flow_control.serve(self.now)
            if self.now > self._load.seconds and not self._open:
                break
        return Outcome(self._jobs, self._loads() - early_loads, self.now, self._open, self._overtaken)

    def _loads(self) -> int:
        return sum(server.loads for server in self.servers)

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Have something done at a time, after what is to be done then already."""
        heappush(self._events, (time, next(self._numbers), act))

    def _scrape(self) -> None:
        for endpoint, server in zip(self._endpoints, self.servers, strict=True):
            if server.is_up:
                report = replace(server.report(self.now), interval=self._load.scrape_seconds)
                tell = partial(self.scheduler.observe, endpoint, report)
                self.at(self.now + self._load.scrape_age, tell)
        self.at(self.now + self._load.scrape_seconds, self._scrape)

    def _arrive(self, job: Job) -> None:
        self._jobs.append(job)
        promise, route = job.promise or Objective(first_token=job.objective), f"priority {job.priority}"
        request = InstanceRequest(
            "base", job.adapter, job.prompt_tokens, job.prefix, job.priority, promise, route=route
        )
        self._open += 1
        if self._flow_control is None:
            self._put(job, self.scheduler.pick(request, self._up, self.now))
            return
        waiting = self._flow_control.submit("pool", request, lambda: self._up, self.now)
        if waiting.made is None:
            waiting.on_made = lambda made: self._put(job, made)
        else:
            self._put(job, waiting.made)

    def _put(self, job: Job, made: Pick | Rejection) -> None:
        if not isinstance(made, Pick):
            job.rejected, job.ended_at = True, self.now
            self._end_job(job, None, RETRY_SECONDS)
            return
        job.placement = made.placement
        if job.priority < 0 and self._flow_control is not None:
            waiting = self._flow_control.waiting.get("pool", {})
            self._overtaken += any(count and priority >= 0 for priority, count in waiting.items())
        server = self._by_address[made.endpoint.address]
        server.put(job)
        if server.busy_until is None:
            self._step(server)

    def _step(self, server: SimulatedServer | PagedServer) -> None:
        ends_at = server.begin(self.now)
        if ends_at is not None:
            epoch = server.epoch
            self.at(ends_at, lambda: self._end_step(server, epoch))

    def _end_step(self, server: SimulatedServer | PagedServer, epoch: int) -> None:
        if server.epoch != epoch:
            return
        started, ended = server.end(self.now)
        for job in started:
            if job.placement is not None:
                job.placement.first_token(self.now)
        for job in ended:
            usage = InstanceUsage(job.prompt_tokens, job.cached_tokens, job.output_tokens)
            self._end_job(job, usage, 0.0)
        self._step(server)

    def _end_job(self, job: Job, usage: InstanceUsage | None, pause: float) -> None:
        self._open -= 1
        if job.placement is not None:
            job.placement.finish(usage, self.now)
            job.placement = None
        self._go_on(job, pause)

    def _go_on(self, job: Job, pause: float) -> None:
        if self._load.follow is None or self.now > self._load.seconds:
            return
        following = self._load.follow(job, self.now + pause)
        if following is not None:
            self.at(following.arrival, lambda: self._arrive(following))

    def _crash(self, crash: Crash) -> None:
        server, endpoint = self.servers[crash.server], self._endpoints[crash.server]
        lost = server.crash()
        self._up = tuple(each for each in self._up if each is not endpoint)
        for job in lost:
            job.rejected, job.ended_at = True, self.now
            self._end_job(job, None, RETRY_SECONDS)
        self.at(crash.until, lambda: self._come_back(crash.server))

    def _come_back(self, index: int) -> None:
        self.servers[index].start(self.now)
        self._up = tuple(each for number, each in enumerate(self._endpoints) if self.servers[number].is_up)
