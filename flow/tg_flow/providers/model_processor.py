"""An opened model -> its processor, from the first request until it is replaced."""

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Any

import structlog

from tg_base.runtime import translate_defects
from tg_base.server import Processor, Service
from tg_flow.providers.bound_models import ModelBinding
from tg_schema import TgError
from tg_schema.errors import Internal

log = structlog.get_logger()


class ModelProcessor:
    """One processor in a task of its own: the bus cancels the task that entered a subscription when that fails.

    Attributes:
        binding: how its model was configured when it was opened.
        processor: what serves.
        begun: set when it serves or has failed.
        error: why it has failed; None = it has not.
    """

    def __init__(self, model: str, binding: ModelBinding, processor: Processor) -> None:
        self._model = model
        self.binding = binding
        self.processor = processor
        self.begun = asyncio.Event()
        self.error: TgError | None = None
        self._replaced = asyncio.Event()
        self._left: Collection[str] = ()

    async def run(self, service: Service[Any, Any]) -> None:
        """Serve until cancelled or, if replaced, until the last request has ended.

        Raises what ends the processor. Once it is replaced, its failure is only logged: another one serves.
        """
        try:
            async with AsyncExitStack() as stack:
                # A processor closes its service when it is left, so only one that fails to start needs this.
                stack.push_async_callback(self._close, service)
                await self.processor.__aenter__()
                stack.pop_all()
        except TgError as error:
            self.error = error
            return
        finally:
            self.begun.set()
        try:
            with self._translate_defects():
                async with AsyncExitStack() as stack:
                    stack.push_async_exit(self.processor)
                    await self._replaced.wait()
                    await self.processor.retire(self._left)
        except TgError as error:
            if not self._replaced.is_set():
                raise
            log.error("model.close_failed", model=self._model, reason=error.message)

    def replace(self, left: Collection[str] = ()) -> None:
        """Take no more requests, a little later from queues that are `left` to nobody else (`Processor.retire`).

        `run` returns when the last one has ended.
        """
        self._left = left
        self._replaced.set()

    async def _close(self, service: Service[Any, Any]) -> None:
        try:
            with self._translate_defects():
                await service.aclose()
        except TgError as error:
            log.error("model.close_failed", model=self._model, reason=error.message)

    def _translate_defects(self) -> AbstractContextManager[object]:
        """A provider may be third-party code; its defects must not stop the services beside it."""
        defect = f'the provider of model "{self._model}" has a defect; the log says which'
        return translate_defects(Internal, defect, "model.defect", log.bind(model=self._model))
