"""Metrics of the doors, in addition to those of `tg_base.telemetry.metrics`, and the page that shows all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Generic, TypeVar

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from tg_base.telemetry import Label, MetricTable, gen_ai, labels

T = TypeVar("T")


class FreshAnswer(Generic[T]):
    """The answer to one question.

    Args:
        ask: asks it.
        seconds: how long its answer may be reused.
    """

    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._answer: T

    async def get(self) -> T:
        """The answer. Callers that come while it is requested share the same result."""
        time = asyncio.get_running_loop().time
        async with self._asking:
            if time() - self._asked_at > self._seconds:
                self._answer = await self._ask()
                # Read the clock again: the answer may have taken long.
                self._asked_at = time()
            return self._answer


METRICS: Final = MetricTable()
_PLACE: Final = (labels.SERVICE, labels.MODEL, labels.FLOW)
_FINE: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1)
_LONG: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)

FIRST_TOKEN_SECONDS = METRICS.histogram(
    "tg_first_token_seconds",
    "Request to first content",
    *_PLACE,
    buckets=labels.SECONDS,
    published=gen_ai.SERVER_FIRST,
)
CHUNK_GAP_SECONDS = METRICS.histogram(
    "tg_chunk_gap_seconds", "Between two chunks of a stream", *_PLACE, buckets=labels.SECONDS
)
REQUEST_SECONDS = METRICS.histogram(
    "tg_request_seconds",
    "Request to the end of its answer, if that is whole",
    *_PLACE,
    buckets=_LONG,
    published=gen_ai.SERVER_DURATION,
)
OVERHEAD_SECONDS = METRICS.histogram(
    "tg_overhead_seconds", "A chunk's time in the gateway", labels.SERVICE, buckets=_FINE
)
find_request_counter = METRICS.finder(
    "tg_gateway_requests_total",
    "Requests ended",
    *(Label("door", "`http`, `sse`, `socket`, `background`"), labels.SERVICE, labels.OUTCOME),
)
find_key_requests = METRICS.finder("tg_key_requests_total", "Requests of a key ended", labels.KEY, labels.OUTCOME)
BAND = METRICS.counter("tg_band_total", "Requests that waited on the bus", labels.SERVICE, labels.EVENT)
BAND_MADE = METRICS.gauge("tg_band_made", "Requests that waited on the bus and are asked for now", labels.SERVICE)
SOCKETS = METRICS.gauge("tg_gateway_sockets", "WebSockets open now")
STREAMING = METRICS.gauge("tg_gateway_streams", "Requests relayed now")
UNAUTHENTICATED_REFUSED = METRICS.counter(
    "tg_gateway_unauthenticated_refused_total", "Connections cut off, over their address's limit"
)
MALFORMED = METRICS.counter(
    "tg_gateway_malformed_total", "Connections whose bytes were no request, or that broke in one"
)
AUTH_FAILURES = METRICS.counter("tg_gateway_auth_failures_total", "Requests without a right token, or of who guesses")

MAX_QUICK_SAMPLES: Final = 200
"""Samples that are written on the event loop before it serves others, in about a millisecond. 1,000 models have 4,000
samples of token counts; each histogram of a pool with 1,000 adapters has 15,000."""
_NO_TEXT: Final = bytes(each for each in range(32) if each != ord("\n"))
"""Prometheus rejects a page with a NUL. Labels hold names that others chose."""


class _Family(Collector):
    """The samples of one metric at one moment."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    @override
    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


async def render_metrics() -> bytes:
    """All metrics of this process. They are read on the event loop, in turns; long ones are formatted in a thread."""
    parts: list[bytes] = []
    quick = 0
    for metric in REGISTRY.collect():
        family, size = _Family(metric), len(metric.samples)
        quick += size
        if size > MAX_QUICK_SAMPLES:
            parts.append(await asyncio.to_thread(generate_latest, family))
        else:
            parts.append(generate_latest(family))
        if quick > MAX_QUICK_SAMPLES:
            quick = 0
            await asyncio.sleep(0)
    return b"".join(parts).translate(None, _NO_TEXT)


class MetricsPage:
    """The metrics of this process; one page is made at a time.

    Args:
        fresh: seconds for which a page is reused.
    """

    def __init__(self, fresh: float = 0.0) -> None:
        self._page = FreshAnswer(render_metrics, fresh)

    async def show(self, request: web.Request) -> web.Response:
        """All metrics of this process, in the format that Prometheus asks for."""
        return web.Response(body=await self._page.get(), headers={"Content-Type": CONTENT_TYPE_LATEST})
