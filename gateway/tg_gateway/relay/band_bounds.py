"""Band -> whether one more answer may wait: this gateway counts what it put there, until it has left."""

import time
from collections import Counter
from typing import Final

from tg_base.telemetry import REFUSALS
from tg_gateway.relay.waiting_answers import WaitingAnswers
from tg_schema.errors import RateLimited

CHECKED_AT_ONCE: Final = 4
"""Answers that are looked for at each refusal: other gateways may have taken them."""
RETRY_AFTER_SECONDS: Final = 10.0


class BandBounds:
    """What one gateway has waiting.

    Args:
        answers: says how the answers stand.
        max_key: of one key.
        max_all: of all keys.
    """

    def __init__(self, answers: WaitingAnswers, *, max_key: int, max_all: int) -> None:
        self._answers = answers
        self._max_key = max_key
        self._max_all = max_all
        self._keys: Counter[str | None] = Counter()
        self._waiting: dict[str, tuple[str | None, float]] = {}

    async def admit(self, key: str | None, name: str, seconds: float, service: str) -> None:
        """Count one more.

        Raises:
            RateLimited: as many wait as may.
            BusError: the bus did not answer.
        """
        if self._is_full(key):
            await self._look(key)
        if self._is_full(key):
            REFUSALS.labels(service, "band").inc()
            raise RateLimited(
                'too many responses wait for room; wait for some of them, or ask without service_tier "flex"',
                retry_after=RETRY_AFTER_SECONDS,
            )
        self._waiting[name] = key, time.monotonic() + seconds
        self._keys[key] += 1

    def forget(self, name: str) -> None:
        """It waits no more."""
        if name in self._waiting:
            key, _ = self._waiting.pop(name)
            self._keys -= Counter([key])

    def _is_full(self, key: str | None) -> bool:
        return self._keys[key] >= self._max_key or self._keys.total() >= self._max_all

    async def _look(self, key: str | None) -> None:
        """Forget what has expired, and what others have taken or ended of a few: those not looked at for longest."""
        now, crowded = time.monotonic(), self._keys.total() >= self._max_all
        found = [(name, *known) for name, known in self._waiting.items() if crowded or known[0] == key]
        for name, _, until in found:
            if until <= now:
                self._answers.count_kept(name)
                self.forget(name)
        for name, owner, until in found[:CHECKED_AT_ONCE]:
            if until > now and not await self._answers.contains(owner, name):
                self.forget(name)
            elif name in self._waiting:
                # To the end, or what was cancelled behind the oldest would count until they are taken.
                self._waiting[name] = self._waiting.pop(name)
