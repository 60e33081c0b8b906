"""Requests -> a model that is opened for the first request, and closed when it was unused for a while."""

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
"""Most seconds that a request waits for its model to be loaded; the requestor's timeouts do not run meanwhile."""


class ServiceOutline(NamedTuple):
    """What is known of a service before its model is loaded."""

    provider: str
    capacity: int
    features: frozenset[Feature]
    adapters: Mapping[str, str] = MappingProxyType({})


class OnDemandModel(Service[TextCompletionRequest, TextCompletionResponse]):
    """A model that is loaded on demand.

    It announces the features that its provider has with these options. If the model itself lacks one of them, requests
    for that feature are refused after it is loaded.

    Args:
        model: the model's name, for the log.
        outline: what is announced.
        load: opens the provider.
        unload_after: seconds without a request after which the model is unloaded; None = it stays loaded.
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
            # Drop the request, since its prompt may be long; the service keeps the parts that it needs.
            del request
            put, asked = None, cast("AsyncGenerator[TextCompletionResponse, Any]", responses)
            with suppress(StopAsyncIteration):
                while True:
                    # The processor may send in a function that takes records without waking a task: hand it on.
                    put = yield await asked.asend(put)

    @override
    async def read(self, body: bytes) -> TextCompletionRequest:
        async with self._use() as service:
            return await service.read(body)

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[LlmService]:
        """The model, which stays loaded until the block is left.

        Raises:
            TgError: the model cannot be loaded. The next request tries again.
        """
        self._users += 1
        try:
            if self._unloading is not None:
                # If it is being unloaded, wait for the end: two copies might not fit in memory. If it only waits to be
                # unloaded, keep it.
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
            # Use a context of its own: tasks that the model starts outlive this request, and would send its ids on.
            self._loading = asyncio.create_task(self._load_now(), name="load", context=Context())
            self._loading.add_done_callback(_note_failure)
        # A client that leaves does not stop a load, because others may wait for it.
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
        # Let an unloading that has begun finish: nobody else would close its model.
        tasks = [task for task in (self._loading, self._unloading) if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        service, self._service = self._service, None
        if service is not None:
            await service.aclose()


def _note_failure(loading: "asyncio.Task[LlmService]") -> None:
    """Retrieve a failed load's error. Waiting requests raise it, but there may be none left."""
    if not loading.cancelled():
        loading.exception()
