"""Generations -> EnginePool -> engines: several contexts of one model, so that small steps fill more than one core."""

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
"""Up to this many streams, one engine is faster than two."""


class EnginePool(Generic[AnyModel]):
    """One model and its engines.

    A small model's step is too short to be shared by threads that wait for each other: two engines of one thread each
    do nearly twice the work of one engine with two threads, and keep it up when other programs take a core.

    Attributes:
        adapters: the model's LoRA adapters.
    """

    def __init__(self, model: AnyModel, sizes: EngineSizes, adapters: Mapping[str, AdapterFile] | None = None) -> None:
        """Make room for `sizes.slots` streams in each of `sizes.engines`; the model is closed with the pool.

        `adapters` are the files of those that are known from the beginning, by name; None = it will never have any.

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
        """Give `generation` to an engine with few streams, else to the one with the least to do; returns the engine.

        Raises as `Engine.submit`; then the generation has left.
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
        """A vector for each of `texts`, shared out to the engines that do nothing, or else to the least busy one.

        Cancelling it drops the texts that are not evaluated yet. Raises as `Engine.embed`.
        """
        idle = [engine for engine in self._engines if not engine.load()][: len(texts)]
        # Start with the last engine, since a few streams share the first.
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
        """End what runs, and free everything; may be called more than once."""
        for engine in self._engines:
            engine.close()
        # Free adapters after the engines, whose contexts use them, and before the model, which owns them.
        self.adapters.close()
        self.model.close()
