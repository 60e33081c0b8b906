"""Flow -> transport: when a call that has failed before its first record is asked again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from tg_client.transport.deadline import Deadline
from tg_schema import TgError
from tg_schema.errors import RateLimited

T = TypeVar("T")
OnRetry = Callable[[TgError, float], None]

MAX_RETRIES = 3
"""Default of the retries after errors other than RateLimited: a lasting failure is reported within seconds."""
SPREAD_SECONDS = 0.5
"""A retry waits longer than `retry_after` by a random part of this, so that refused clients do not return all at once.

It doubles with each retry, `_MAX_DOUBLINGS` times at most.
"""
_MAX_DOUBLINGS = 4


class Retries(msgspec.Struct, frozen=True):
    """How often a call is asked again.

    Attributes:
        most: retries of a call; None = after RateLimited until its timeout, and `MAX_RETRIES` after other errors.
        tell: called before each wait with the error and the seconds.
    """

    most: int | None = None
    tell: OnRetry | None = None

    async def repeat(
        self, clock: Deadline, attempt: Callable[[], Awaitable[T]], over: Callable[[], bool] = lambda: False
    ) -> T:
        """What an attempt returns. Once it is `over`, there is no other one.

        Raises:
            TgError: that of the last attempt.
        """
        retries = counted = 0
        while True:
            try:
                return await attempt()
            except TgError as error:
                counted += self.most is not None or not isinstance(error, RateLimited)
                most = MAX_RETRIES if self.most is None else self.most
                spread = SPREAD_SECONDS * 2 ** min(retries, _MAX_DOUBLINGS)
                wait = (error.retry_after or 0.0) + random.uniform(0, spread)  # noqa: S311 - no secret depends on it
                if counted > most or not error.retryable or wait >= clock.left or over():
                    raise
                if self.tell is not None:
                    self.tell(error, wait)
            await asyncio.sleep(wait)
            retries += 1
