"""Flex queue -> whether another response may wait: what one gateway has put there, by key."""

from contextlib import suppress
from typing import Final

from tg_base.telemetry import REFUSALS
from tg_gateway.access import Limits
from tg_gateway.jobs.logs import JobLogs
from tg_schema.errors import NotFound, RateLimited

CHECKED_AT_ONCE: Final = 4
"""How many waiting responses are checked at each refusal: other gateways may have taken them."""
RETRY_AFTER_SECONDS: Final = 10.0


class QueueBounds:
    """Counts the responses that one gateway has put into the flex queue.

    Args:
        logs: the logs of the responses.
        limits: how many may wait.
    """

    def __init__(self, logs: JobLogs, limits: Limits) -> None:
        self._logs = logs
        self._limits = limits
        self._waiting: dict[str, str | None] = {}

    async def admit(self, key: str | None, name: str, service: str) -> None:
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
        self._waiting[name] = key

    def forget(self, name: str) -> None:
        """Stop counting a response that waits no longer."""
        self._waiting.pop(name, None)

    def _is_full(self, key: str | None) -> bool:
        own = sum(each == key for each in self._waiting.values())
        return own >= self._limits.waiting or len(self._waiting) >= self._limits.all_waiting

    async def _look(self, key: str | None) -> None:
        """Check a few, the least recently checked first. Forget those that have expired, or that others have."""
        crowded = len(self._waiting) >= self._limits.all_waiting
        found = [(name, owner) for name, owner in self._waiting.items() if crowded or owner == key]
        for name, owner in found[:CHECKED_AT_ONCE]:
            if not await self._waits(owner, name):
                self.forget(name)
            elif name in self._waiting:
                # Move it to the end; otherwise only the oldest would ever be checked.
                self._waiting[name] = self._waiting.pop(name)

    async def _waits(self, key: str | None, name: str) -> bool:
        """Whether no model was asked, and it has no end. Raises BusError as `admit`."""
        with suppress(NotFound):
            log = await self._logs.load(self._logs.owner(key), name)
            if log.waiting and not await self._logs.end_lost(name, log):
                return True
            # Other gateways do not count what this gateway has queued.
            self._logs.written.mark(name, waits=False)
        return False
