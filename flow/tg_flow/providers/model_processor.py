"""An opened model -> its processor, from the first request until it is replaced."""

import asyncio
from contextlib import AsyncExitStack

from tg_base.llm import LlmService
from tg_base.server import Processor
from tg_flow.providers.bound_models import ModelBinding
from tg_schema import TgError


class ModelProcessor:
    """One processor in a task of its own: the bus cancels the task that entered a subscription when that fails.

    Attributes:
        begun: set when it serves or has failed; `error` has the failure.
    """

    def __init__(self, binding: ModelBinding, processor: Processor) -> None:
        self.binding = binding
        self.processor = processor
        self.begun = asyncio.Event()
        self.error: TgError | None = None
        self._replaced = asyncio.Event()

    async def run(self, service: LlmService) -> None:
        """Serve until cancelled or, if replaced, until the last request has ended."""
        try:
            async with AsyncExitStack() as stack:
                # A processor closes its service when it is left, so only one that fails to start needs this.
                stack.push_async_callback(service.aclose)
                await self.processor.__aenter__()
                stack.pop_all()
        except TgError as error:
            self.error = error
            return
        finally:
            self.begun.set()
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.processor)
            await self._replaced.wait()
            await self.processor.retire()

    def replace(self) -> None:
        """Take no more requests; `run` returns when the last one has ended."""
        self._replaced.set()
