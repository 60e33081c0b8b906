"""Configuration and its edits -> the processors of all bound models: which start, which continue, and which end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any, Protocol, runtime_checkable

import structlog

from tg_base.bus import Bus
from tg_base.config import Config
from tg_base.llm import LlmService
from tg_base.protocol import HeartbeatTiming
from tg_base.server import Host, Processor, Service
from tg_flow.providers.bound_models import (
    ModelBinding,
    bind_models,
    open_for_request,
    open_model,
)
from tg_flow.providers.model_processor import ModelProcessor
from tg_flow.providers.on_demand_model import OnDemandModel
from tg_flow.providers.registry import open_provider, outline_provider, rehearse_provider
from tg_schema import TgError
from tg_schema.topics import Topics


@runtime_checkable
class SharedProvider(Protocol):
    """A provider that shares its state with its copies in other processes. Requests do not depend on it."""

    async def share(self, bus: Bus, topics: Topics) -> None:
        """Publish and listen from now on, until the provider is closed. Called once at most, before the first request.

        Does not wait for the bus, and raises nothing if that is away.
        """


log = structlog.get_logger()

MAX_OPENING_MODELS = 8
"""Models that are opened side by side."""
RETRY_SECONDS = 30.0
"""Pause before a model that could not be opened at the start is tried again."""
REHEARSAL_SECONDS = 5.0
"""Timeout of the rehearsal of an edit's models: a slow one must not delay other changes, as a revoked key."""


class ModelProcessors:
    """Text completion: one processor for each model that a flow binds, opened side by side.

    A model that cannot be opened at the start is tried again every `retry` seconds; the others serve meanwhile.

    When a model's table is edited, a new processor is opened and takes all further requests. The old one ends with its
    last request. If any new one cannot be opened, all old ones stay, and the log says why. A later edit of what is
    being opened cancels that.

    Args:
        config: the active configuration.
        bus: carries everything.
        timing: the processors' heartbeat timing.
        retry: seconds before a model that could not be opened at the start is tried again.
        host: what they share with the other processors of the process; None = each has its own.
    """

    def __init__(
        self,
        config: Config,
        bus: Bus,
        timing: HeartbeatTiming | None = None,
        *,
        retry: float = RETRY_SECONDS,
        host: Host | None = None,
    ) -> None:
        self._config = config
        self._bus = bus
        self._timing = timing
        self._retry = retry
        self._host = host
        self._grace = config.gateway.drain
        self._served: dict[str, ModelProcessor] = {}
        self._failed: dict[str, ModelBinding] = {}
        self._edited = asyncio.Event()
        self._opening: asyncio.Task[None] | None = None

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The processors that take requests now."""
        return tuple(served.processor for served in self._served.values())

    @property
    def failed(self) -> tuple[str, ...]:
        """The models that could not be opened, and are tried again."""
        return tuple(self._failed)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve while the block runs.

        Raises:
            TgError: no model can be opened; the message is that of the first one, with its position in the file.
        """
        try:
            async with asyncio.TaskGroup() as self._group:
                tasks = self._tasks = set[asyncio.Task[None]]()
                try:
                    self._served = await self._begin_what_opens(self._config)
                    self._start(self._follow())
                    yield
                finally:
                    for task in tasks:
                        # A second cancellation would interrupt the draining that the first one began.
                        if not task.cancelling():
                            task.cancel()
        # Callers expect a TgError, not a group; all tasks but the failed one were cancelled because of it.
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def prepare(self, config: Config) -> Callable[[], None]:
        """Rehearse the models that an edit changes, and return the commit, which has them opened in the background.

        A model that an earlier edit changed in the same way, and that is not open yet, is not rehearsed again.

        Raises:
            TgError: one could not be opened; the message has its position in the file.
        """
        known = bind_models(self._config)
        changed = [model for model, binding in self._find_changed(config).items() if known.get(model) != binding]
        # Past the timeout the edit is accepted unrehearsed; `_follow` still keeps the old models if opening fails.
        with suppress(TimeoutError):
            async with asyncio.timeout(REHEARSAL_SECONDS):
                for model in changed:
                    await open_model(config, model, rehearse_provider)

        def commit() -> None:
            # A model that is being opened may hang or fail: an edit that corrects it must not wait.
            if self._opening is not None and self._find_changed(config) != self._find_changed(self._config):
                self._opening.cancel()
            self._config = config
            self._edited.set()

        return commit

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._retry if self._failed else None):
                    await self._edited.wait()
            self._edited.clear()
            # Opening takes time: edits that arrive meanwhile set the event again, and only the last one counts.
            config = self._config
            if not self._find_changed(config) and bind_models(config).keys() == self._served.keys():
                continue
            self._opening = self._start(self._open(config))
            await asyncio.wait([self._opening])

    async def _open(self, config: Config) -> None:
        begun, errors = await self._begin(config)
        bound = bind_models(config)
        # A model that was already failing in the same way must not block the reload of the others.
        refused = [error for model, error in errors.items() if self._failed.get(model) != bound[model]]
        if refused:
            # A failure at the start has nothing to do with the edit.
            recovered = {model: each for model, each in begun.items() if self._failed.get(model) == bound[model]}
            _replace_all(each for model, each in begun.items() if model not in recovered)
            self._served |= recovered
            self._failed = {model: binding for model, binding in self._failed.items() if model not in recovered}
            log.error("models.refused", reason=refused[0].message)
            return
        self._note_failed(bound, errors)
        if begun or self._served.keys() - bound.keys():
            self._replace(config, begun)

    def _note_failed(self, bound: dict[str, ModelBinding], errors: dict[str, TgError]) -> None:
        self._failed = {model: bound[model] for model in errors}
        for model, error in errors.items():
            log.error("model.failed", model=model, reason=error.message)

    def _replace(self, config: Config, begun: dict[str, ModelProcessor]) -> None:
        # Do not await until the end, so that no other task sees a model that is served twice, or not at all.
        bound, before = bind_models(config), self._served
        self._served = {**before, **begun}
        self._served = {model: served for model, served in self._served.items() if model in bound}
        ended = [model for model, served in before.items() if self._served.get(model) is not served]
        read = {route.request for served in self._served.values() for route in served.binding.routes}
        for model in ended:
            before[model].replace({route.request for route in before[model].binding.routes} - read)
        log.info("models.in_force", begun=sorted(begun), ended=sorted(ended))

    async def _begin_what_opens(self, config: Config) -> dict[str, ModelProcessor]:
        begun, errors = await self._begin(config)
        if errors and not begun:
            raise next(iter(errors.values()))
        self._note_failed(bind_models(config), errors)
        return begun

    async def _begin(self, config: Config) -> tuple[dict[str, ModelProcessor], dict[str, TgError]]:
        """Start a processor for each model whose binding changed; if cancelled, none.

        Returns:
            The processors, and the errors of the models that cannot be opened, both in the order of the file.
        """
        changed, outcomes = self._find_changed(config), dict[str, ModelProcessor | TgError]()
        room = asyncio.Semaphore(MAX_OPENING_MODELS)

        async def open_one(model: str, binding: ModelBinding) -> None:
            async with room:
                try:
                    outcomes[model] = await self._serve(config, model, binding)
                except TgError as error:
                    outcomes[model] = error

        with ExitStack() as failed:
            failed.callback(lambda: _replace_all(outcomes.values()))
            # If this is cancelled, `gather` cancels and awaits them all.
            ends = await asyncio.gather(*(open_one(*each) for each in changed.items()), return_exceptions=True)
            for defect in filter(None, ends):
                raise defect
            failed.pop_all()
        done = [(model, outcomes[model]) for model in changed]
        begun = {model: each for model, each in done if isinstance(each, ModelProcessor)}
        return begun, {model: each for model, each in done if isinstance(each, TgError)}

    async def _serve(self, config: Config, model: str, binding: ModelBinding) -> ModelProcessor:
        service = await self._open_service(config, model, binding)
        processor = Processor(
            self._bus,
            config.topics,
            service,
            binding.routes,
            models=(model,),
            timing=self._timing,
            grace=self._grace,
            host=self._host,
        )
        served = ModelProcessor(model, binding, processor)
        self._start(served.run(service), name=f"model {model}")
        try:
            await served.begun.wait()
        except asyncio.CancelledError:
            served.replace()
            raise
        if served.error is not None:
            raise served.error
        return served

    async def _open_service(self, config: Config, model: str, binding: ModelBinding) -> Service[Any, Any]:
        if not binding.on_demand:
            return await self._share(config, await open_model(config, model, open_provider))
        # A model that takes memory is checked as far as possible. A lazy model must cost nothing, not even an import.
        if binding.unload_after is not None:
            await open_model(config, model, rehearse_provider)
        outline = await open_model(config, model, outline_provider)

        async def load() -> LlmService:
            return await self._share(config, await open_for_request(config, model, open_provider))

        return OnDemandModel(model, outline, load, binding.unload_after)

    async def _share(self, config: Config, service: LlmService) -> LlmService:
        if isinstance(service, SharedProvider):
            await service.share(self._bus, config.topics)
        return service

    def _start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """A task that ends when the serving ends."""
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _find_changed(self, config: Config) -> dict[str, ModelBinding]:
        served = {model: each.binding for model, each in self._served.items()}
        return {model: binding for model, binding in bind_models(config).items() if served.get(model) != binding}


def _replace_all(outcomes: Iterable[ModelProcessor | TgError]) -> None:
    for each in outcomes:
        if isinstance(each, ModelProcessor):
            each.replace()
