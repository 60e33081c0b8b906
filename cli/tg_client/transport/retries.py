"""Flow -> transport: when a call that failed before its first record is repeated."""

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
"""Default number of retries after errors other than RateLimited: a lasting failure is reported within seconds."""
SPREAD_SECONDS = 0.5
"""Largest random delay that a retry adds to `retry_after`, so that refused clients do not all return at once.

It doubles with each retry, at most `_MAX_DOUBLINGS` times.
"""
_MAX_DOUBLINGS = 4


class Retries(msgspec.Struct, frozen=True):
    """How often a call is repeated.

    Attributes:
        most: retries of a call; None = after RateLimited until the call's timeout, after other errors `MAX_RETRIES`.
        tell: called before each wait with the error and the seconds.
    """

    most: int | None = None
    tell: OnRetry | None = None

    async def repeat(
        self, clock: Deadline, attempt: Callable[[], Awaitable[T]], over: Callable[[], bool] = lambda: False
    ) -> T:
        """The result of the first attempt that succeeds. After a failure, an attempt that is `over` is not repeated.

        Raises:
            TgError: the error of the last attempt.
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
