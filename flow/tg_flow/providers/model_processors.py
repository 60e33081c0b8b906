"""Configuration and its edits -> the processors of all bound models: which start, which continue, which end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from typing import Any, Protocol, runtime_checkable

import structlog
from typing_extensions import override

from tg_base.bus import Bus
from tg_base.config import Config
from tg_base.llm import LlmService
from tg_base.runtime import translate_defects
from tg_base.server import EditedProcessors, Opened, Opening, Processor, ServeContext, Service
from tg_flow.providers.bound_models import (
    ModelBinding,
    bind_models,
    open_for_request,
    open_model,
)
from tg_flow.providers.on_demand_model import OnDemandModel
from tg_flow.providers.registry import open_provider, outline_provider, rehearse_provider
from tg_schema import TgError
from tg_schema.errors import Internal
from tg_schema.topics import Topics


@runtime_checkable
class SharedProvider(Protocol):
    """A provider that shares its state with its copies in other processes. Requests are answered without it too."""

    async def share(self, bus: Bus, topics: Topics) -> None:
        """Publish and receive the state from now on, until the provider is closed. If called, then before any request.

        It does not wait for the bus, and raises nothing if the bus cannot be reached.
        """


log = structlog.get_logger()

MAX_OPENING_MODELS = 8
"""Models that are opened concurrently."""
RETRY_SECONDS = 30.0
"""Seconds before a model that could not be opened at the start is tried again."""
REHEARSAL_SECONDS = 5.0
"""Timeout of the rehearsal of an edit's models, so that a slow one does not delay other changes, as a revoked key."""


class ModelProcessor(Opening):
    """One model's processor.

    Attributes:
        binding: the model's configuration at the time when it was opened.
    """

    def __init__(self, model: str, binding: ModelBinding) -> None:
        # A provider may be third-party code. Its defects must not stop the other services of this process.
        defect = f'the provider of model "{model}" has a defect; the log says which'
        named = log.bind(model=model)
        super().__init__(named, "model.close_failed", translate_defects(Internal, defect, "model.defect", named))
        self.binding = binding


class ModelProcessors(EditedProcessors):
    """Text completion: one processor for each model that a flow binds. Models are opened concurrently.

    A model that cannot be opened at the start is tried again every `retry` seconds; meanwhile the others serve.

    When a model's table is edited, a new processor is opened and takes all further requests. The old one ends after its
    last request. If one of the new processors cannot be opened, all old ones stay, and the log says why. A later edit
    cancels an opening that it makes obsolete.

    Args:
        context: the current configuration, and what the processors need.
        retry: seconds before a model that could not be opened at the start is tried again.
    """

    def __init__(self, context: ServeContext, retry: float = RETRY_SECONDS) -> None:
        super().__init__(context.config)
        self._context = context
        self._retry = retry
        self._served: dict[str, ModelProcessor] = {}
        self._failed: dict[str, ModelBinding] = {}

    @property
    def processors(self) -> tuple[Processor, ...]:
        """The processors that take requests now."""
        return tuple(processor for served in self._served.values() for processor in served.processors or ())

    @property
    def failed(self) -> tuple[str, ...]:
        """The models that could not be opened; they are tried again."""
        return tuple(self._failed)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve while the block runs.

        Raises:
            TgError: no model can be opened; the message is the first model's, with its position in the file.
        """
        async with self._serving():
            self._served = await self._begin_what_opens(self._config)
            self._start(self._follow())
            yield

    async def prepare(self, config: Config) -> Callable[[], None]:
        """Rehearse the models that an edit changes. Returns the commit, which opens them in the background.

        A model is not rehearsed again if an earlier edit changed it in the same way and it is still being opened.

        Raises:
            TgError: a model could not be opened; the message has its position in the file.
        """
        known = bind_models(self._config)
        changed = [model for model, binding in self._find_parts(config).items() if known.get(model) != binding]
        # After the timeout the edit is accepted unrehearsed; `_follow` keeps the old models if opening fails.
        with suppress(TimeoutError):
            async with asyncio.timeout(REHEARSAL_SECONDS):
                for model in changed:
                    await open_model(config, model, rehearse_provider)

        return lambda: self._commit(config)

    @property
    @override
    def _pause(self) -> float | None:
        return self._retry if self._failed else None

    @override
    def _is_served(self, config: Config) -> bool:
        return not self._find_parts(config) and bind_models(config).keys() == self._served.keys()

    @override
    async def _open(self, config: Config) -> None:
        begun, errors = await self._begin(config)
        bound = bind_models(config)
        # A model that was already failing in the same way must not block the reload of the others.
        refused = [error for model, error in errors.items() if self._failed.get(model) != bound[model]]
        if refused:
            # A model that failed at the start and now opens has nothing to do with the edit.
            recovered = {model: each for model, each in begun.items() if self._failed.get(model) == bound[model]}
            _replace_all(each for model, each in begun.items() if model not in recovered)
            self._served |= recovered
            self._failed = {model: binding for model, binding in self._failed.items() if model not in recovered}
            log.error("models.refused", reason=refused[0].message)
            return
        self._note_failed(bound, errors)
        if begun or self._served.keys() - bound.keys():
            ended = self._replace(config, begun)
            try:
                await asyncio.gather(*(each.handed_over.wait() for each in ended.values()))
            finally:
                log.info("models.in_force", begun=sorted(begun), ended=sorted(ended))

    def _note_failed(self, bound: dict[str, ModelBinding], errors: dict[str, TgError]) -> None:
        self._failed = {model: bound[model] for model in errors}
        for model, error in errors.items():
            log.error("model.failed", model=model, reason=error.message)

    def _replace(self, config: Config, begun: dict[str, ModelProcessor]) -> dict[str, ModelProcessor]:
        """Let the new processors serve. Returns those that they replace."""
        # Do not await here, so that no other task sees a model that is served twice, or not at all.
        bound, before = bind_models(config), self._served
        self._served = {**before, **begun}
        self._served = {model: served for model, served in self._served.items() if model in bound}
        ended = {model: served for model, served in before.items() if self._served.get(model) is not served}
        read = {queue for served in self._served.values() for queue in served.queues}
        for each in ended.values():
            each.replace(each.queues - read)
        return ended

    async def _begin_what_opens(self, config: Config) -> dict[str, ModelProcessor]:
        begun, errors = await self._begin(config)
        if errors and not begun:
            raise next(iter(errors.values()))
        self._note_failed(bind_models(config), errors)
        return begun

    async def _begin(self, config: Config) -> tuple[dict[str, ModelProcessor], dict[str, TgError]]:
        """Start a processor for each model whose binding changed. If this is cancelled, none is started.

        Returns:
            The processors, and the errors of models that cannot be opened, both in the order of the file.
        """
        changed, outcomes = self._find_parts(config), dict[str, ModelProcessor | TgError]()
        room = asyncio.Semaphore(MAX_OPENING_MODELS)

        async def open_one(model: str, binding: ModelBinding) -> None:
            async with room:
                try:
                    outcomes[model] = await self._serve_model(config, model, binding)
                except TgError as error:
                    outcomes[model] = error

        with ExitStack() as failed:
            failed.callback(lambda: _replace_all(outcomes.values()))
            # If this is cancelled, `gather` cancels all of them and waits for them.
            ends = await asyncio.gather(*(open_one(*each) for each in changed.items()), return_exceptions=True)
            for defect in filter(None, ends):
                raise defect
            failed.pop_all()
        done = [(model, outcomes[model]) for model in changed]
        begun = {model: each for model, each in done if isinstance(each, ModelProcessor)}
        return begun, {model: each for model, each in done if isinstance(each, TgError)}

    async def _serve_model(self, config: Config, model: str, binding: ModelBinding) -> ModelProcessor:
        served = ModelProcessor(model, binding)
        await self._serve(served, self._open_processor(config, model, served), f"model {model}")
        return served

    @asynccontextmanager
    async def _open_processor(
        self, config: Config, model: str, served: ModelProcessor
    ) -> AsyncIterator[tuple[Processor, ...]]:
        service = await self._open_service(config, model, served.binding)
        async with AsyncExitStack() as stack:
            yield (await self._context.begin(Opened(service, served.binding.routes, (model,)), served, stack),)

    async def _open_service(self, config: Config, model: str, binding: ModelBinding) -> Service[Any, Any]:
        if not binding.on_demand:
            return await self._share(config, await open_model(config, model, open_provider))
        # Check a model that takes memory as far as possible. Any other lazy model must cost nothing, not even imports.
        if binding.unload_after is not None:
            await open_model(config, model, rehearse_provider)
        outline = await open_model(config, model, outline_provider)

        async def load() -> LlmService:
            return await self._share(config, await open_for_request(config, model, open_provider))

        return OnDemandModel(model, outline, load, binding.unload_after)

    async def _share(self, config: Config, service: LlmService) -> LlmService:
        if isinstance(service, SharedProvider):
            await service.share(self._context.bus, config.topics)
        return service

    @override
    def _find_parts(self, config: Config) -> dict[str, ModelBinding]:
        served = {model: each.binding for model, each in self._served.items()}
        return {model: binding for model, binding in bind_models(config).items() if served.get(model) != binding}


def _replace_all(outcomes: Iterable[ModelProcessor | TgError]) -> None:
    for each in outcomes:
        if isinstance(each, ModelProcessor):
            each.replace()
