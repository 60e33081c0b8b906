"""A model server of another design than `SimulatedServer`: policies that were tuned on that one are judged on this one.

Prompts and answers take turns, a prompt starts only while a tenth of the cache is free, adapters load beside the batch,
and a step takes now longer, now shorter. It tells use of the whole cache, so it queues at 90 %.
"""

from collections import Counter, deque
from random import Random

from bench.instances.block_cache import BlockCache
from bench.instances.job import Job
from bench.instances.server_model import ServerModel
from bench.instances.simulated_server import REPORTED_BLOCK_TOKENS
from tg_picker.core import AdapterReport, LoadReport, Residency

ADMITTED_SHARE = 0.9
KEPT_SHARE = 0.98
"""A full cache is cleared to this share at once."""
NOISE = 0.15
"""Standard deviation of a step's duration, as a share of it."""
PROMPT_TOKENS, SEQUENCES = 2_560, 96
"""Of a step of prompts, and side by side."""
LOOK_SECONDS = 0.01
"""How often it looks whether an adapter has been loaded while it has nothing else to do."""


class PagedServer:
    """Runs jobs step by step, by the same calls as `SimulatedServer`.

    Args:
        model: its constants; its batch limits, and how it tells its use, are those of this module.
    """

    clock = 0
    busy_until: float | None

    def __init__(self, model: ServerModel) -> None:
        self.model, self.is_up, self.started_at, self.epoch, self.loads = model, True, 0.0, 0, 0
        self._random = Random(0)
        self._clear()

    def _clear(self) -> None:
        tokens = self.model.cache_tokens
        self.cache = BlockCache(tokens, int(ADMITTED_SHARE * tokens))
        self.waiting: deque[Job] = deque()
        self.prefilling: list[Job] = []
        self.decoding: dict[Job, None] = {}
        self.resident: dict[str, None] = {}
        self._ready_at: dict[str, float] = {}
        self.running_adapters: Counter[str] = Counter()
        self._delay, self.busy_until = self.model.cold_seconds, None

    def crash(self) -> list[Job]:
        """Lose everything; the requests that were here."""
        jobs = [*self.waiting, *self.prefilling, *self.decoding]
        self._clear()
        self.epoch += 1
        self.is_up = False
        return jobs

    def start(self, now: float) -> None:
        """Begin anew after a crash."""
        self.is_up, self.started_at = True, now

    def put(self, job: Job) -> None:
        """Queue a request."""
        self.waiting.append(job)

    def stall(self, seconds: float) -> None:
        """Lengthen the next step by these seconds."""
        self._delay += seconds

    def begin(self, now: float) -> float | None:
        """Begin a step; when it ends. None: nothing to do."""
        answers_next = bool(self.prefilling and self.decoding)
        self.prefilling = []
        if not answers_next:
            self._take_prompts(now)
        model, seconds = self.model, LOOK_SECONDS
        if self.prefilling:
            tokens = sum(job.left_tokens for job in self.prefilling)
            behind = sum(job.left_tokens * (job.prompt_tokens - job.left_tokens / 2) for job in self.prefilling)
            seconds = model.prefill_seconds(tokens, behind / tokens)
        elif self.decoding:
            seconds = model.decode_seconds(len(self.decoding), self.cache.active)
        elif not self._ready_at:
            self.busy_until = None
            return None
        seconds *= self._random.lognormvariate(0.0, NOISE)
        self.busy_until, self._delay = now + seconds + self._delay, 0.0
        return self.busy_until

    def end(self, now: float) -> tuple[list[Job], list[Job]]:
        """End the step; the requests that got their first token, and those that ended."""
        started = [job for job in self.prefilling if job.first_at is None]
        moved = self.prefilling or list(self.decoding)
        for job in moved:
            job.generated += 1
            job.private_tokens += 1
            job.left_tokens = 0
            self.decoding[job] = None
        self.cache.active += len(moved)
        for job in started:
            job.first_at = now
        ended = [job for job in moved if job.generated >= job.output_tokens]
        for job in ended:
            job.ended_at = now
            self._leave(job)
            self.cache.keep_answer(job)
        if self.cache.active > self.cache.capacity:
            while self.cache.active > KEPT_SHARE * self.cache.capacity and len(self.decoding) > 1:
                job = next(reversed(self.decoding))
                self._leave(job)
                self.waiting.appendleft(job)
        self.cache.evict()
        return started, ended

    def _leave(self, job: Job) -> None:
        del self.decoding[job]
        self.cache.release(job)
        if job.adapter is not None:
            self.running_adapters[job.adapter] -= 1
            self.running_adapters += Counter()  # without those at zero

    def _take_prompts(self, now: float) -> None:
        room, left = PROMPT_TOKENS, deque[Job]()
        while self.waiting and room > 0 and len(self.decoding) + len(self.prefilling) < SEQUENCES:
            job = self.waiting.popleft()
            if not self._has_adapter(job.adapter, now):
                left.append(job)
                continue
            if not self.cache.allocate(job):
                left.append(job)
                break
            if job.first_at is None:
                job.cached_tokens = job.prompt_tokens - job.left_tokens
            if job.adapter is not None:
                self.running_adapters[job.adapter] += 1
            self.prefilling.append(job)
            room -= job.left_tokens
        self.waiting.extendleft(reversed(left))

    def _has_adapter(self, adapter: str | None, now: float) -> bool:
        """Whether an adapter is loaded; if not, its load begins where a slot can be had."""
        if adapter is None:
            return True
        if self._ready_at.get(adapter, now) > now:
            return False
        self._ready_at.pop(adapter, None)
        if adapter in self.resident:
            self.resident[adapter] = self.resident.pop(adapter)  # the most recently used
            return True
        if len(self.resident) >= self.model.slots:
            wanted = self.running_adapters.keys() | self._ready_at.keys()
            idle = next((each for each in self.resident if each not in wanted), None)
            if idle is None:
                return False
            del self.resident[idle]
        self.loads += 1
        self.resident[adapter] = None
        self._ready_at[adapter] = max([now, *self._ready_at.values()]) + self.model.load_seconds / self.model.speed
        return False

    def report(self, now: float) -> LoadReport:
        """What a scrape sees."""
        adapters = None
        if self.model.slots:
            queued = frozenset(job.adapter for job in self.waiting if job.adapter is not None)
            loaded: dict[str, Residency] = {each: "gpu" for each in self.resident if each not in self._ready_at}
            adapters = AdapterReport(self.model.slots, frozenset(self.running_adapters), queued, loaded)
        return LoadReport(
            now,
            queued=len(self.waiting),
            running=len(self.decoding) + len(self.prefilling),
            kv_usage=min(self.cache.active / self.cache.capacity, 1.0),
            block_tokens=REPORTED_BLOCK_TOKENS,
            blocks=self.cache.capacity // REPORTED_BLOCK_TOKENS,
            adapters=adapters,
            started_at=self.started_at,
        )
