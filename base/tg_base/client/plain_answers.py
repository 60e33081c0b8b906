"""Plain peers' answer topics -> attempts: each is read from the first request on, since plain peers know no inbox."""

import asyncio
from contextlib import AsyncExitStack
from contextvars import Context
from functools import partial
from typing import Any

from typing_extensions import override

from tg_base.client.attempts import Attempts
from tg_base.protocol import Subscriptions
from tg_base.runtime import Entered
from tg_schema.errors import Unavailable


class PlainAnswers(Entered):
    """Reads a topic until it is left.

    Args:
        subscriptions: opens the topics.
        attempts: the attempts, which get the answers.
    """

    def __init__(self, subscriptions: Subscriptions, attempts: Attempts) -> None:
        super().__init__()
        self._subscriptions, self._attempts = subscriptions, attempts
        self._openings: dict[str, asyncio.Task[None]] = {}

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._stop_opening)

    async def read(self, topic: str) -> None:
        """Read this topic from now on. All callers share one attempt to open it, which continues if a caller leaves.

        Raises:
            BusError: the bus did not answer in time or refused; the next request tries again.
            Unavailable: the block was left.
        """
        opening = self._openings.get(topic)
        if opening is None:
            each = self._subscriptions.each(topic, self._attempts.on_plain, Context())
            opening = asyncio.create_task(self._exit.enter_async_context(each), context=Context())
            opening.add_done_callback(partial(self._forget_refused, topic))
            self._openings[topic] = opening
        await asyncio.wait([opening])
        if opening.cancelled():
            raise Unavailable("this process is shutting down; ask again")
        opening.result()

    def _forget_refused(self, topic: str, opening: asyncio.Task[Any]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            del self._openings[topic]

    async def _stop_opening(self) -> None:
        for opening in (openings := [*self._openings.values()]):
            opening.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
