"""Processor -> provider: whose request the current task answers, and where each call of a model is recorded."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import msgspec
from msgspec.structs import replace

from tg_base.protocol import RequestHeaders
from tg_schema.usage_record import UsageRecord

FAILED_CALLS: Final = 1_000_000
"""Calls that failed before they brought anything, and were tried again, have numbers above this one."""


class UsageAccount(msgspec.Struct):
    """One request at one processor.

    Attributes:
        headers: the request's.
        flow: the id of the flow that was asked.
        queued_at: when the requestor published it, in milliseconds since the epoch.
        size: bytes of the request's JSON.
        put: takes a record without waiting.
        calls: calls of a provider that are over and have brought something, or may have.
        retried: calls that failed before they brought anything, and were followed by another one.
        failed: the records of such failed calls that no other call has followed yet.
    """

    headers: RequestHeaders
    flow: str
    queued_at: int
    size: int
    put: Callable[[UsageRecord], None]
    calls: int = 0
    retried: int = 0
    failed: list[UsageRecord] = []

    def record(self, record: UsageRecord) -> None:
        """Publish the record of a call that is over, under its number.

        If this process dies, or is taken for dead, its requestor records the call that was running, as number 1. Calls
        for several answers of a request run concurrently, and the requestor records them as one: if one of them has
        ended before, as number 1, the others that still ran are not counted.
        """
        self.calls += 1
        self.put(replace(record, call=self.calls))

    def note_retry(self) -> None:
        """Another call begins: the calls that failed before they brought anything get numbers of their own."""
        for record in self.failed:
            self.retried += 1
            self.put(replace(record, call=FAILED_CALLS + self.retried))
        self.failed.clear()

    def close(self) -> None:
        """The request is over, and no other call begins."""
        while self.failed:
            self.record(self.failed.pop(0))


ACCOUNT: Final[ContextVar[UsageAccount | None]] = ContextVar("usage_account", default=None)
"""The account of the current task's request; None = no processor runs it, so that nothing is recorded."""
