"""A stream of a text completion that nobody was asked for: what comes of it is put there by the test."""

import asyncio
from typing import Any

from tg_base.client import ResponseStream
from tg_base.client.attempt import Attempt
from tg_base.protocol import Route, StreamKey
from tg_base.telemetry import trace
from tg_schema import TEXT_COMPLETION


def open_unasked(name: str = "s", timeout: float = 60.0, *, model: str | None = None) -> ResponseStream[Any]:
    """The stream."""
    route, now = Route("f", TEXT_COMPLETION, "request", "response", model=model), asyncio.get_running_loop().time()
    return ResponseStream(Attempt(StreamKey(name, 1), route, trace.child(name), now, now), timeout)
