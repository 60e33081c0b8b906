"""Generations -> EnginePool -> engines: several contexts of one model, so that a small model can use several cores."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from tg_base.telemetry import AdapterLoad, ModelLoad
from tg_llama.core import EngineSizes, Model, OwnPooling
from tg_llama.engine.embedder import Embedding, Vector
from tg_llama.engine.engine import Engine, EngineStats
from tg_llama.engine.generation import Generation
from tg_llama.lora import AdapterFile, AdapterSlots
from tg_schema import TgError

AnyModel = TypeVar("AnyModel", bound=Model)

FEW_STREAMS = 4
"""Up to this many concurrent streams, one engine is faster than two."""


class EnginePool(Generic[AnyModel]):
    """One model and its engines.

    A small model's step is too short to be shared by threads that wait for each other. Two engines of one thread each
    do nearly twice the work of one engine with two threads, even when other programs use a core.

    Attributes:
        adapters: the model's LoRA adapters.
    """

    def __init__(self, model: AnyModel, sizes: EngineSizes, adapters: Mapping[str, AdapterFile] | None = None) -> None:
        """Allocate `sizes.slots` slots in each of `sizes.engines` engines. The model is closed with the pool.

        `adapters` are the files of the adapters known at the start, by name; None = the model will never have any.

        Raises:
            Unavailable: there is not enough memory.
        """
        self.model = model
        self.context_length = sizes.context
        self._tokens = sizes.slots * sizes.context
        self.adapters = AdapterSlots(model, adapters or {}, resident=sizes.adapters, waiting=sizes.waiting)
        self._takes_adapters = adapters is not None
        self._engines: list[Engine] = []
        try:
            for _ in range(sizes.engines):
                self._engines.append(Engine(model, sizes))
        except TgError:
            self.close()
            raise

    def submit(self, generation: Generation) -> Engine:
        """Give `generation` to an engine with few streams, or else to the least loaded one. Returns the engine.

        Raises as `Engine.submit`; then the generation has released its adapter.
        """
        few = (engine for engine in self._engines if engine.load() < FEW_STREAMS)
        chosen = next(few, None) or min(self._engines, key=Engine.load)
        try:
            chosen.submit(generation)
        except TgError:
            generation.leave()
            raise
        return chosen

    async def embed(
        self, texts: Sequence[tuple[int, ...]], pooling: OwnPooling, dimensions: int | None = None
    ) -> list[Vector]:
        """A vector for each of `texts`. Idle engines share the texts; if none is idle, the least loaded one gets all.

        Cancelling this drops the texts that are not evaluated yet. Raises as `Engine.embed`.
        """
        idle = [engine for engine in self._engines if not engine.load()][: len(texts)]
        # Start with the last engine, because a few streams share the first one.
        engines = idle or [min(reversed(self._engines), key=Engine.load)]
        shares = [Embedding(texts[first :: len(engines)], pooling, dimensions) for first in range(len(engines))]
        vectors: list[Vector] = [()] * len(texts)
        try:
            for engine, share in zip(engines, shares, strict=True):
                engine.embed(share)
            for first, share in enumerate(shares):
                found = await asyncio.wrap_future(share.vectors)
                vectors[first :: len(engines)] = found
        finally:
            for share in shares:
                share.vectors.cancel()
        return vectors

    def stats(self) -> EngineStats:
        """The stats of all engines together."""
        return EngineStats.total([engine.stats() for engine in self._engines])

    def look(self, model: str) -> ModelLoad:
        """The load of this model, reported under the name `model`; any thread may call it."""
        looks = [engine.show_requests() for engine in self._engines]
        running = [each for shown, _ in looks for each in shown]
        waiting = [*[name for _, shown in looks for name in shown], *self.adapters.waiting]
        stats, most = self.stats(), self._tokens * len(self._engines)
        cached = sum(tokens for _, tokens in running)
        adapters = AdapterLoad(
            self.adapters.resident_limit,
            self.adapters.resident,
            Counter(name for name, _ in running if name is not None),
            Counter(name for name in waiting if name is not None),
        )
        queued = stats.waiting + len(self.adapters.waiting)
        return ModelLoad(model, stats.running, queued, cached, most, adapters if self._takes_adapters else None)

    def close(self) -> None:
        """Fail what runs, and free everything; may be called more than once."""
        for engine in self._engines:
            engine.close()
        # Free adapters after the engines, whose contexts use them, and before the model, which owns them.
        self.adapters.close()
        self.model.close()
