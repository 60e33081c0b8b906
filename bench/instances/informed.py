"""A policy that knows the true state of every simulated server: a yardstick, not a bound, and of no use elsewhere."""

from collections.abc import Callable, Mapping
from operator import itemgetter

from bench.instances.job import Job
from bench.instances.paged_server import PagedServer
from bench.instances.simulated_server import SimulatedServer
from tg_picker.core import Choice, SchedulingContext

CROWD_WEIGHT = 0.02
"""What a second taken from each running request counts against a second of this one's wait."""


class Informed:
    """The server with the least predicted time to the first token, computed from what only the server knows."""

    def __init__(self, servers: Mapping[str, SimulatedServer | PagedServer], clock: Callable[[], float]) -> None:
        self._servers = servers
        self._clock = clock

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by queue, steps, cache and adapters as they are at this moment."""
        request = context.request
        job = Job(0.0, request.prompt_tokens, context.expected_tokens, 0.0, request.adapter, request.prefix)
        costs = [
            (self._cost(self._servers[state.endpoint.address], job), context.random.random(), index)
            for index, state in enumerate(context.servers)
        ]
        best = min(costs)
        return Choice(context.servers[best[2]], (f"cost {best[0]:.3f}",))

    def _cost(self, server: SimulatedServer | PagedServer, job: Job) -> float:
        model = server.model
        now = self._clock()
        wait = max((server.busy_until or now) - now, 0.0)
        waiting_tokens = sum(each.left_tokens for each in server.prefilling) + sum(
            each.prompt_tokens + each.generated - 64 * server.cache.cached(each) for each in server.waiting
        )
        own = max(job.prompt_tokens - 64 * server.cache.cached(job), 1)
        prefill = model.prefill_seconds(waiting_tokens + own, job.prompt_tokens / 2)
        step = model.decode_seconds(len(server.decoding), server.cache.active)
        load = self._load_seconds(server, job.adapter, step)
        room = self._room_seconds(server, job, step)
        crowd = len(server.decoding) + len(server.waiting)
        taken = model.prefill_seconds(own, 0.0) + load
        # What this request costs the others, and a lean towards the emptier server.
        return wait + prefill + load + room + CROWD_WEIGHT * crowd * (taken + step)

    def _load_seconds(self, server: SimulatedServer | PagedServer, adapter: str | None, step: float) -> float:
        wanted = {job.adapter for job in server.waiting if job.adapter and job.adapter not in server.resident}
        loads = len(wanted | {adapter} - {None}) if adapter and adapter not in server.resident else len(wanted)
        seconds = loads * server.model.load_seconds / server.model.speed
        if adapter is None or adapter in server.resident:
            return seconds
        used = set(server.running_adapters) | {job.adapter for job in server.waiting if job.adapter}
        if adapter in used or len(used) < server.model.slots:
            return seconds
        # Every slot is in use: one of them has to drain.
        ends: dict[str, int] = {}
        for job in server.decoding:
            left = job.output_tokens - job.generated - (server.clock - job.start_clock)
            ends[job.adapter or ""] = max(ends.get(job.adapter or "", 0), left)
        return seconds + step * min(ends.values(), default=0) + 1.0

    def _room_seconds(self, server: SimulatedServer | PagedServer, job: Job, step: float) -> float:
        """Until the cache has room for all that waits and for this."""
        cache = server.cache
        needed = cache.active + sum(map(cache.room_for, [*server.waiting, job])) - cache.capacity
        # Answers grow: those that run need more before they end.
        if needed <= 0:
            return 0.0
        left = sorted(
            (
                (each.output_tokens - each.generated - (server.clock - each.start_clock), each.prompt_tokens)
                for each in server.decoding
            ),
            key=itemgetter(0),
        )
        freed = 0
        for steps, tokens in left:
            freed += tokens + steps
            if freed >= needed:
                return step * steps
        return step * (left[-1][0] if left else 0) + 1.0
