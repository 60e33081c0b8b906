"""Processor -> provider: whose request the current task answers, and where each call of a model is recorded."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import msgspec

from tg_base.protocol import RequestHeaders
from tg_schema.usage_record import UsageRecord


class UsageAccount(msgspec.Struct):
    """One request at one processor.

    Attributes:
        headers: the request's.
        flow: the id of the flow that was asked.
        queued_at: when the requestor published it, in milliseconds since the epoch.
        size: bytes of the request's JSON.
        put: takes a record without waiting.
        calls: calls of a provider so far.
    """

    headers: RequestHeaders
    flow: str
    queued_at: int
    size: int
    put: Callable[[UsageRecord], None]
    calls: int = 0


ACCOUNT: Final[ContextVar[UsageAccount | None]] = ContextVar("usage_account", default=None)
"""The account of the current task's request; None = no processor runs it, so that nothing is recorded."""
