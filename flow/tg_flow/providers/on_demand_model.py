"""Requests -> a model that is opened for the first of them, and closed when none has used it for a while."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import Context
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import structlog
from typing_extensions import override

from tg_base.llm import LlmService
from tg_base.runtime import report
from tg_base.server import Service
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import Timeout
from tg_schema.features import Feature

log = structlog.get_logger()

MAX_LOAD_SECONDS = 1800.0
"""How long a request waits for its model to be loaded: no clock of the requestor runs meanwhile."""


class ServiceOutline(NamedTuple):
    """What is known of a service before its model is loaded."""

    provider: str
    capacity: int
    features: frozenset[Feature]
    adapters: Mapping[str, str] = MappingProxyType({})


class OnDemandModel(Service[TextCompletionRequest, TextCompletionResponse]):
    """One model.

    It announces the features of its provider with these options; requests for features that the model lacks are refused
    later.

    Args:
        model: its name, for the log.
        outline: what it announces.
        load: opens the provider.
        unload_after: seconds without a request after which it is unloaded; None = it stays.
    """

    spec = TEXT_COMPLETION

    def __init__(
        self, model: str, outline: ServiceOutline, load: Callable[[], Awaitable[LlmService]], unload_after: float | None
    ) -> None:
        self.provider, self.capacity, self.features, self._adapters = outline
        self._log = log.bind(model=model)
        self._load = load
        self._unload_after = unload_after
        self._service: LlmService | None = None
        self._loading: asyncio.Task[LlmService] | None = None
        self._unloading: asyncio.Task[None] | None = None
        self._users = 0

    @property
    @override
    def loading(self) -> bool:
        return self._service is None

    @property
    @override
    def adapters(self) -> Mapping[str, str]:
        return self._adapters if self._service is None else self._service.adapters

    @override
    async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, Any]:
        async with self._use() as service, aclosing(service.on_request(request)) as responses:
            # The service keeps of it what it needs; a prompt may be long.
            del request
            put, asked = None, cast("AsyncGenerator[TextCompletionResponse, Any]", responses)
            with suppress(StopAsyncIteration):
                while True:
                    # Pass a function that takes records without waking a task on to the service.
                    put = yield await asked.asend(put)

    @override
    async def read(self, body: bytes) -> TextCompletionRequest:
        async with self._use() as service:
            return await service.read(body)

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[LlmService]:
        """The model, which stays until the block is left.

        Raises:
            TgError: it cannot be loaded. The next request tries again.
        """
        self._users += 1
        try:
            if self._unloading is not None:
                # Wait for an unloading: two copies might not fit in memory. A model that only waits to be unloaded
                # stays.
                await self._stop_unloading(self._unloading)
            yield self._service or await self._wait_loaded()
        finally:
            self._users -= 1
            self._watch_unused()

    def _watch_unused(self) -> None:
        seconds = self._unload_after
        if seconds is not None and not self._users and self._service is not None and self._unloading is None:
            self._unloading = asyncio.create_task(self._unload_unused(seconds), name="unload")
            self._unloading.add_done_callback(report)

    async def _wait_loaded(self) -> LlmService:
        if self._loading is None:
            # In a context of its own: what the model starts outlives the request, whose ids it would send to servers.
            self._loading = asyncio.create_task(self._load_now(), name="load", context=Context())
            self._loading.add_done_callback(_note_failure)
        # A client that leaves does not stop what others wait for.
        loading = self._loading
        await asyncio.wait([loading], timeout=MAX_LOAD_SECONDS)
        if not loading.done():
            raise Timeout(f"the model was not loaded within {MAX_LOAD_SECONDS:.0f} s; see the log of its processor")
        return loading.result()

    async def _load_now(self) -> LlmService:
        self._log.info("model.loading")
        try:
            self._service = await self._load()
            self._service.announce = self.announce
        finally:
            self._loading = None
        self.announce()
        self._log.info("model.loaded")
        self._watch_unused()
        return self._service

    async def _stop_unloading(self, unloading: "asyncio.Task[None]") -> None:
        if self._service is not None:
            unloading.cancel()
            self._unloading = None
        else:
            await asyncio.wait([unloading])

    async def _unload_unused(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        service, self._service = self._service, None
        self.announce()
        try:
            if service is not None:
                await service.aclose()
        finally:
            self._unloading = None
        self._log.info("model.unloaded")

    @override
    async def aclose(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
        if self._unloading is not None and self._service is not None:
            self._unloading.cancel()
        # An unloading that has begun goes on: nobody else closes the model that it has taken.
        tasks = [task for task in (self._loading, self._unloading) if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        service, self._service = self._service, None
        if service is not None:
            await service.aclose()


def _note_failure(loading: "asyncio.Task[LlmService]") -> None:
    """Retrieve a failed load's error: the waiting requests get it, but none may be left."""
    if not loading.cancelled():
        loading.exception()
