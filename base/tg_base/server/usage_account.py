"""Processor -> provider: whose request the current task answers, and where each call of a model is recorded."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import msgspec

from tg_base.protocol import RequestHeaders
from tg_schema.usage_record import UsageRecord

FAILED_CALLS: Final = 1_000_000
"""The numbers above it are those of calls that failed before they brought anything."""


class UsageAccount(msgspec.Struct):
    """One request at one processor.

    Attributes:
        headers: the request's.
        flow: the id of the flow that was asked.
        queued_at: when the requestor published it, in milliseconds since the epoch.
        size: bytes of the request's JSON.
        put: takes a record without waiting.
        calls: calls of a provider that are over and have brought something, or may have.
        failures: those that failed before they brought anything.
    """

    headers: RequestHeaders
    flow: str
    queued_at: int
    size: int
    put: Callable[[UsageRecord], None]
    calls: int = 0
    failures: int = 0

    def number_call(self, *, in_vain: bool) -> int:
        """The number of a call that is over, for its record. In vain: it failed before it brought anything.

        If this process is killed, its requestor records the call that was running, as number 1.
        """
        if in_vain:
            self.failures += 1
            return FAILED_CALLS + self.failures
        self.calls += 1
        return self.calls


ACCOUNT: Final[ContextVar[UsageAccount | None]] = ContextVar("usage_account", default=None)
"""The account of the current task's request; None = no processor runs it, so that nothing is recorded."""
