"""Requests -> answers: clients that ask without a pause, each on one connection, and how long each answer took."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from typing_extensions import override

from bench.fake_provider import LENGTH
from bench.load_client import percentile
from bench.provider_floor import END

PATIENCE_SECONDS = 30.0
"""For the last answers."""


class AskingClient(asyncio.Protocol):
    """One connection that is kept: the same request again and again.

    Args:
        request: all of it.
        until: when the last one may be asked, on the clock of `time.monotonic_ns`.

    Attributes:
        done: set when the last answer has come; fails if one is no success, or if the server closes.
        latencies: nanoseconds from each request to the last byte of its answer.
    """

    def __init__(self, request: bytes, until: int) -> None:
        self._request = request
        self._until = until
        self._received = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.latencies: list[int] = []

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        self._received.clear()
        self._asked = time.monotonic_ns()
        self._transport.write(self._request)

    @override
    def data_received(self, data: bytes) -> None:
        self._received += data
        head, ended, body = self._received.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not ended or not (body.endswith(END) if length is None else len(body) >= int(length[1])):
            return
        now = time.monotonic_ns()
        self.latencies.append(now - self._asked)
        if not head.startswith(b"HTTP/1.1 200"):
            self._finish(RuntimeError(f"an answer is no success: {bytes(self._received[:500])!r}"))
        elif now < self._until:
            self._ask()
        else:
            self._finish(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(ConnectionError("the server closed a connection"))

    def _finish(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
        self._transport.close()


async def ask(port: int, requests: Sequence[bytes], seconds: float) -> dict[str, Any]:
    """As many clients as requests, for so long: `requests`, `per_second`, and `p50` and `p99` in milliseconds.

    Raises:
        RuntimeError: an answer is no success.
        ConnectionError: the server closed a connection.
        TimeoutError: an answer did not come.
    """
    began = time.monotonic_ns()
    open_client = partial(AskingClient, until=began + int(seconds * 1e9))
    connect = asyncio.get_running_loop().create_connection
    async with asyncio.timeout(seconds + PATIENCE_SECONDS):
        opened = [await connect(partial(open_client, request), "127.0.0.1", port) for request in requests]
        await asyncio.gather(*(client.done for _, client in opened))
    latencies = [latency for _, client in opened for latency in client.latencies]
    return {
        "requests": len(latencies),
        "per_second": len(latencies) * 1e9 / (time.monotonic_ns() - began),
        "p50": percentile(latencies, 0.5),
        "p99": percentile(latencies, 0.99),
    }
