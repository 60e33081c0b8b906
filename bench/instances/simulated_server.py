"""A model server in virtual time: a queue, a batch that changes at each step, a KV cache, adapters in slots."""

from collections import Counter, deque
from heapq import heappop, heappush

from msgspec.structs import replace

from bench.instances.block_cache import BlockCache
from bench.instances.job import Job
from bench.instances.server_model import TOLD_FIELDS, ServerModel
from tg_picker.core import AdapterReport, LoadReport

REPORTED_BLOCK_TOKENS = 16


class SimulatedServer:
    """Runs jobs step by step. Its owner calls `begin`, waits as long as it says, and calls `end`.

    Requests are admitted in order; one whose adapter finds no slot is passed over, as vLLM does. Growth of answers that
    does not fit sends the youngest request back to the queue.
    """

    def __init__(self, model: ServerModel) -> None:
        self.model = model
        self.is_up = True
        self.started_at = 0.0
        self.epoch = 0
        self.busy_until: float | None = None
        self.loads = 0
        self._clear()

    def _clear(self) -> None:
        tokens = self.model.cache_tokens
        self.cache = BlockCache(tokens, int(self.model.admitted_share * tokens))
        self._delay = self.model.cold_seconds
        self.waiting: deque[Job] = deque()
        self.prefilling: list[Job] = []
        self.decoding: dict[Job, None] = {}
        self.resident: dict[str, None] = {}
        self.running_adapters: Counter[str] = Counter()
        self.clock = 0
        self._ends: list[tuple[int, int, Job]] = []
        self._order = 0
        self._decodes = False
        self._chunks: list[tuple[Job, int]] = []
        self.busy_until = None

    def crash(self) -> list[Job]:
        """Lose everything; the requests that were here."""
        jobs = [*self.waiting, *self.prefilling, *self.decoding]
        self._clear()
        self.epoch += 1
        self.is_up = False
        return jobs

    def start(self, now: float) -> None:
        """Begin anew after a crash. The next report tells when that was."""
        self.is_up, self.started_at = True, now

    def put(self, job: Job) -> None:
        """Queue a request."""
        self.waiting.append(job)

    def stall(self, seconds: float) -> None:
        """Lengthen the next step by these seconds."""
        self._delay += seconds

    def begin(self, now: float) -> float | None:
        """Begin a step; when it ends. None: nothing to do."""
        load_seconds = self._admit() * self.model.load_seconds / self.model.speed
        self._chunks = self._chunk()
        tokens = sum(chunk for _, chunk in self._chunks)
        self._decodes = bool(self.decoding) and (self.model.chunked or not tokens)
        if not tokens and not self._decodes:
            self.busy_until = None
            return None
        seconds, self._delay = load_seconds + self._delay, 0.0
        if tokens:
            behind = sum(chunk * (job.prompt_tokens - job.left_tokens + chunk / 2) for job, chunk in self._chunks)
            seconds += self.model.prefill_seconds(tokens, behind / tokens)
        if self._decodes or self.model.chunked:
            seconds += self.model.decode_seconds(len(self.decoding), self.cache.active)
        self.busy_until = now + seconds
        return self.busy_until

    def end(self, now: float) -> tuple[list[Job], list[Job]]:
        """End the step; the requests that got their first token, and those that ended."""
        ended = self._decode(now) if self._decodes else []
        started = []
        for job, chunk in self._chunks:
            job.left_tokens -= chunk
            if job.left_tokens:
                continue
            self.prefilling.remove(job)
            if job.first_at is None:
                job.first_at = now
                started.append(job)
            self._start_decoding(job, now, ended)
        return started, ended

    def _start_decoding(self, job: Job, now: float, ended: list[Job]) -> None:
        job.generated += 1
        if job.generated >= job.output_tokens:
            self._finish(job, now)
            ended.append(job)
            return
        job.start_clock = self.clock
        self.decoding[job] = None
        self._order += 1
        heappush(self._ends, (self.clock + job.output_tokens - job.generated, self._order, job))

    def _decode(self, now: float) -> list[Job]:
        self.clock += 1
        self.cache.active += len(self.decoding)
        ended = []
        while self._ends and self._ends[0][0] <= self.clock:
            end, _, job = heappop(self._ends)
            # A request that was sent back has left an entry that no longer fits.
            if job in self.decoding and end == job.start_clock + job.output_tokens - job.generated:
                del self.decoding[job]
                self._grow(job)
                self._finish(job, now)
                ended.append(job)
        while self.cache.active > self.cache.capacity and self.decoding:
            self._preempt()
        self.cache.evict()
        return ended

    def _grow(self, job: Job) -> None:
        grown = self.clock - job.start_clock
        job.generated += grown
        job.private_tokens += grown

    def _preempt(self) -> None:
        job, _ = self.decoding.popitem()
        self._grow(job)
        self._leave(job)
        self.waiting.appendleft(job)

    def _finish(self, job: Job, now: float) -> None:
        job.ended_at = now
        self._leave(job)
        self.cache.keep_answer(job)

    def _leave(self, job: Job) -> None:
        self.cache.release(job)
        if job.adapter is not None:
            self.running_adapters[job.adapter] -= 1
            if not self.running_adapters[job.adapter]:
                del self.running_adapters[job.adapter]

    def _admit(self) -> int:
        """Take requests into the batch; how many adapters this loads."""
        loads, passed_over = 0, []
        room = self.model.batch_tokens - sum(job.left_tokens for job in self.prefilling)
        while self.waiting and room > 0 and len(self.decoding) + len(self.prefilling) < self.model.sequences:
            job = self.waiting[0]
            if not self._has_slot(job.adapter):
                passed_over.append(self.waiting.popleft())
                continue
            if not self.cache.allocate(job):
                break
            loads += self._activate(job.adapter)
            self.prefilling.append(self.waiting.popleft())
            if job.first_at is None:
                job.cached_tokens = job.prompt_tokens - job.left_tokens
            room -= job.left_tokens
        self.waiting.extendleft(reversed(passed_over))
        self.loads += loads
        return loads

    def _has_slot(self, adapter: str | None) -> bool:
        if adapter is None or adapter in self.resident or len(self.resident) < self.model.slots:
            return True
        return len(self.running_adapters) < self.model.slots

    def _activate(self, adapter: str | None) -> int:
        if adapter is None:
            return 0
        load = adapter not in self.resident
        if load and len(self.resident) >= self.model.slots:
            del self.resident[next(each for each in self.resident if each not in self.running_adapters)]
        self.resident.pop(adapter, None)
        self.resident[adapter] = None
        self.running_adapters[adapter] += 1
        return int(load)

    def _chunk(self) -> list[tuple[Job, int]]:
        """How much of which prompt this step computes."""
        if not self.model.chunked:
            return [(job, job.left_tokens) for job in self.prefilling]
        room, chunks = self.model.batch_tokens - len(self.decoding), []
        for job in self.prefilling:
            if room <= 0:
                break
            chunks.append((job, min(job.left_tokens, room)))
            room -= chunks[-1][1]
        return chunks

    def report(self, now: float) -> LoadReport:
        """What a scrape sees. As in vLLM, adapters with any request stand both among the active and the waiting."""
        adapters, queued = None, None
        if self.model.slots:
            queued = Counter(job.adapter for job in self.waiting if job.adapter is not None)
            used = frozenset(self.running_adapters) | frozenset(queued)
            adapters = AdapterReport(self.model.slots, used, used, dict.fromkeys(self.resident, "gpu"))
        report = LoadReport(
            now,
            queued=len(self.waiting),
            running=len(self.decoding) + len(self.prefilling),
            kv_usage=min(self.cache.active / (self.model.told_share * self.cache.capacity), 1.0),
            block_tokens=REPORTED_BLOCK_TOKENS,
            blocks=self.cache.capacity // REPORTED_BLOCK_TOKENS,
            adapters=adapters,
            queued_by_adapter=None if queued is None else dict(queued),
            started_at=self.started_at,
        )
        return replace(report, **dict.fromkeys(TOLD_FIELDS - self.model.tells))
