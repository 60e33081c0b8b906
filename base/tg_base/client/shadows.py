"""Requests of a route -> its shadow: copies, which never delay the requests, and whose answers are dropped."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

import msgspec

from tg_base.client.asked_stream import AskedStream
from tg_base.client.response_stream import ResponseStream
from tg_base.runtime import start_task
from tg_base.telemetry import trace
from tg_schema import TgError
from tg_schema.features import Feature

MAX_SHADOWS: Final = 64
"""Copies that one process runs; beyond it requests are not copied."""
SHADOW_SECONDS: Final = 300.0
"""Seconds of silence after which a copy is stopped."""


class Shadows:
    """The running copies of one requestor.

    Args:
        ask: `Requestor.stream`.
    """

    def __init__(self, ask: Callable[..., AbstractAsyncContextManager[ResponseStream[Any]]]) -> None:
        self._ask = ask
        self._draw = random.random
        self._running: set[asyncio.Task[object]] = set()

    def copy(self, stream: AskedStream, request: object, needed: frozenset[Feature]) -> None:
        """Copy a sent request, as often as its route says.

        A request with a permit, or to load an adapter, is not copied.

        Args:
            stream: its answer.
            request: its record, unchanged or encoded.
            needed: the features that it needs.
        """
        if stream.terms.permit is not None or "load_adapter" in needed:
            return
        plan = stream.run.plan if stream.run is not None else None
        if plan is None or plan.shadow is None or len(self._running) >= MAX_SHADOWS or self._draw() >= plan.share:
            return
        asking = self._ask(plan.shadow, request, timeout=SHADOW_SECONDS, bounded=True)
        stream.shadow = start_task(self._running, _drop(asking))

    def close(self) -> None:
        """Stop all copies."""
        for task in self._running:
            task.cancel()


async def _drop(asking: AbstractAsyncContextManager[ResponseStream[Any]]) -> None:
    """Read an answer that nobody sees, and for which nobody is charged. Its processor logs failures."""
    if (span := trace.current()) is not None:
        trace.enter(msgspec.structs.replace(span, payer=None, door="shadow"))
    with suppress(TgError):
        async with asking as answer:
            async for _ in answer:
                pass
