"""Names of LoRA adapters -> adapters in memory: each is loaded for its first request, and some stay loaded."""

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import structlog
from msgspec import Struct

from tg_base.runtime import translate_defects
from tg_llama.core import Adapter, Model
from tg_llama.lora.adapter_files import AdapterFile
from tg_schema import TgError
from tg_schema.errors import BadRequest, Internal, NotFound, RateLimited, Unavailable

MAX_KNOWN = 1_000
"""Most adapters of one model, because each heartbeat names all of them. Load calls beyond it are refused."""

MAX_NAMED = 20
"""Most adapters that an error lists."""

MAX_NAME_CHARACTERS = 64
"""Most characters of a name that an error repeats."""

log = structlog.get_logger()


class _Source(Struct, eq=False):
    """A known adapter. If a name is unloaded and loaded again, it gets a new source."""

    name: str
    file: AdapterFile


class _Resident(Struct, eq=False):
    """An adapter that is in memory, or is being loaded."""

    adapter: Adapter | None = None
    users: int = 0


class Lease:
    """An adapter in use. It stays in memory until all its leases are released. Any thread may release one."""

    def __init__(self, slots: "AdapterSlots", resident: _Resident, adapter: Adapter) -> None:
        self.adapter = adapter
        self._slots = slots
        self._resident = resident
        self._released = False

    def again(self) -> Self:
        """Another lease of the same adapter; call it before this one is released."""
        with self._slots.lock:
            self._resident.users += 1
        return type(self)(self._slots, self._resident, self.adapter)

    def release(self) -> None:
        """Note that the holder no longer uses the adapter; may be called more than once."""
        with self._slots.lock:
            if self._released:
                return
            self._released = True
            self._resident.users -= 1
            self._slots.arrange()


class _Waiter:
    """A request that waits for its adapter."""

    def __init__(self, source: _Source) -> None:
        self.source = source
        self.end: Lease | TgError | None = None
        self._loop = asyncio.get_running_loop()
        self.done = asyncio.Event()

    def finish(self, end: Lease | TgError) -> bool:
        """Wake the request; any thread may call this. Returns False if its loop is closed, so that nobody waits."""
        self.end = end
        try:
            self._loop.call_soon_threadsafe(self.done.set)
        except RuntimeError:
            return False
        return True


class AdapterSlots:
    """The adapters of one model. Any thread may call all methods but `acquire` and `add`, which belong to a loop.

    A free slot goes to the adapter whose first request has waited longest. If no slot is free, the least recently used
    adapter without requests is unloaded. If all have requests, the one that was loaded first takes no more, and is
    unloaded when its last request ends. So an adapter waits at most for the running answers of the adapters before it.

    Args:
        model: the model, which must outlive this.
        files: the file of each adapter that is known from the start.
        resident: the most adapters in memory.
        waiting: requests that may wait for a slot.

    Attributes:
        lock: guards the state.
        resident_limit: the most adapters in memory.
    """

    def __init__(self, model: Model, files: Mapping[str, AdapterFile], *, resident: int, waiting: int) -> None:
        self.lock = threading.RLock()
        self.resident_limit = resident
        self._model = model
        self._room = waiting
        self._sources = {name: _Source(name, file) for name, file in files.items()}
        # The least recently used first.
        self._residents: dict[_Source, _Resident] = {}
        self._waiting: deque[_Waiter] = deque()
        # A single thread: llama.cpp keeps a list of a model's adapters without a lock.
        self._loader = ThreadPoolExecutor(1, "llama-adapters")
        self._closed = False

    @property
    def roots(self) -> dict[str, str]:
        """The adapters that can be requested, and the path of each as it was written."""
        with self.lock:
            return {name: source.file.root for name, source in self._sources.items()}

    @property
    def resident(self) -> tuple[str, ...]:
        """The adapters in memory."""
        with self.lock:
            return tuple(source.name for source, each in self._residents.items() if each.adapter is not None)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The adapter's name of each request that waits for one."""
        with self.lock:
            return tuple(waiter.source.name for waiter in self._waiting)

    async def acquire(self, name: str) -> Lease:
        """A lease of the adapter, as soon as it is in memory. A cancelled wait leaves nothing behind.

        Raises:
            NotFound: no adapter has this name; the message lists the known ones.
            RateLimited: too many requests wait.
            Unavailable: its file cannot be loaded, or the model is closed.
        """
        with self.lock:
            waiter = _Waiter(self._find(name))
            if self._closed:
                raise Unavailable("the model is being shut down; ask again")
            self._waiting.append(waiter)
            self.arrange()
            if len(self._waiting) > self._room and waiter.end is None:
                self._waiting.remove(waiter)
                raise RateLimited("too many requests wait for their adapters: ask again", retry_after=1.0)
        try:
            if waiter.end is None:
                await waiter.done.wait()
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise
        if isinstance(waiter.end, Lease):
            return waiter.end
        raise waiter.end or Internal("an adapter's request was woken without it")

    async def add(self, name: str, file: AdapterFile) -> None:
        """Make another adapter known. It is loaded as a test, and stays loaded if there is a free slot.

        Raises:
            BadRequest: the name is taken, there are already `MAX_KNOWN`, or the file cannot be loaded.
            Unavailable: the model is closed.
        """
        with self.lock:
            self._check_free(name)
            loaded = self._loader.submit(self._try_load, _Source(name, file))
        await asyncio.wrap_future(loaded)

    def remove(self, name: str) -> None:
        """Forget an adapter. Answers that use it or wait for it go on; then its memory is freed.

        Raises:
            NotFound: as `acquire`.
        """
        with self.lock:
            source = self._find(name)
            del self._sources[name]
            self._drop_if_idle(source)

    def close(self) -> None:
        """Refuse waiting requests, and free everything. No context may use an adapter any more."""
        with self.lock:
            self._closed = True
            waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            waiter.finish(Unavailable("the model is being shut down; ask again"))
        self._loader.shutdown(wait=True)
        for resident in self._residents.values():
            if resident.adapter is not None:
                resident.adapter.close()
        self._residents.clear()

    def arrange(self) -> None:
        """Give waiting requests, in order, the adapters that are available now. Call it under `lock`."""
        if self._closed:
            return
        promised: set[_Source] = set()
        coming: set[_Source] = set()
        for waiter in tuple(self._waiting):
            source = waiter.source
            resident = self._residents.get(source)
            if resident is not None and source not in promised:
                if resident.adapter is not None:
                    self._grant(waiter, resident, resident.adapter)
            elif resident is None and source not in coming and not self._make_room(source, promised):
                coming.add(source)
        for source in [source for source in self._residents if self._sources.get(source.name) is not source]:
            self._drop_if_idle(source)

    def _grant(self, waiter: _Waiter, resident: _Resident, adapter: Adapter) -> None:
        self._waiting.remove(waiter)
        self._residents[waiter.source] = self._residents.pop(waiter.source)
        if waiter.finish(Lease(self, resident, adapter)):
            resident.users += 1

    def _make_room(self, source: _Source, promised: set[_Source]) -> bool:
        """Begin to load `source`. If no slot is free, reserve the slot of another adapter for it."""
        victim = None
        if len(self._residents) >= self.resident_limit:
            idle = (each for each, it in self._residents.items() if it.adapter is not None and not it.users)
            victim = next(idle, None)
            if victim is None:
                busy = [each for each, it in self._residents.items() if it.adapter is not None and each not in promised]
                if busy:
                    promised.add(min(busy, key=self._loaded_as))
                return False
        freed = None if victim is None else self._residents.pop(victim).adapter
        resident = self._residents[source] = _Resident()
        self._loader.submit(self._load, source, resident, freed)
        return True

    def _loaded_as(self, source: _Source) -> int:
        adapter = self._residents[source].adapter
        return 0 if adapter is None else adapter.number

    def _load(self, source: _Source, resident: _Resident, freed: Adapter | None) -> None:
        """Load an adapter for its waiting requests; runs in the loader's thread."""
        try:
            with translate_defects(Internal, "an adapter could not be loaded", "llama.adapter_defect", log):
                if freed is not None:
                    freed.close()
                    log.info("adapter.unloaded", adapter=freed.name)
                adapter = self._model.load_adapter(source.name, source.file.path)
        except TgError as error:
            self._fail(source, error)
            return
        log.info("adapter.loaded", adapter=source.name)
        with self.lock:
            resident.adapter = adapter
            # Serve all waiting requests for this adapter at once, even before older requests for others: one load for
            # each would take far longer.
            for waiter in self._waiting_for(source):
                self._grant(waiter, resident, adapter)
            self.arrange()

    def _fail(self, source: _Source, error: TgError) -> None:
        with self.lock:
            del self._residents[source]
            for waiter in self._waiting_for(source):
                self._waiting.remove(waiter)
                waiter.finish(error)
            self.arrange()

    def _try_load(self, source: _Source) -> None:
        """Load an adapter to test its file; runs in the loader's thread."""
        try:
            adapter = self._model.load_adapter(source.name, source.file.path)
        except Unavailable as error:
            raise BadRequest(error.message) from None
        with self.lock:
            try:
                self._check_free(source.name)
            except TgError:
                adapter.close()
                raise
            self._sources[source.name] = source
            if len(self._residents) < self.resident_limit:
                self._residents[source] = _Resident(adapter)
                return
        adapter.close()

    def _drop_if_idle(self, source: _Source) -> None:
        resident = self._residents.get(source)
        wanted = bool(self._waiting_for(source))
        # If the model is being closed, `close` frees all adapters.
        if resident is not None and resident.adapter and not (resident.users or wanted or self._closed):
            del self._residents[source]
            self._loader.submit(resident.adapter.close)
            log.info("adapter.unloaded", adapter=source.name)

    def _waiting_for(self, source: _Source) -> list[_Waiter]:
        return [waiter for waiter in self._waiting if waiter.source is source]

    def _give_up(self, waiter: _Waiter) -> None:
        with self.lock:
            if isinstance(waiter.end, Lease):
                waiter.end.release()
            elif waiter in self._waiting:
                self._waiting.remove(waiter)
                # The adapter whose slot was reserved may take requests again.
                self.arrange()

    def _find(self, name: str) -> _Source:
        with self.lock:
            source = self._sources.get(name)
            if source is None:
                listed = ", ".join(list(self._sources)[:MAX_NAMED])
                short = name[:MAX_NAME_CHARACTERS]
                raise NotFound(f"The lora adapter '{short}' cannot be found; this model has: {listed or 'none'}")
            return source

    def _check_free(self, name: str) -> None:
        if self._closed:
            raise Unavailable("the model is being shut down; ask again")
        if name in self._sources:
            raise BadRequest(f"The lora adapter '{name}' has already been loaded.")
        if len(self._sources) >= MAX_KNOWN:
            raise BadRequest(f"this model has {MAX_KNOWN} adapters already: unload one first")
