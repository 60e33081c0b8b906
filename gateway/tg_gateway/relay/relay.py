"""Door -> requestor -> door: sends requests, relays and measures the answers, and ends them when the gateway leaves."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Self

import structlog
from typing_extensions import override

from tg_base.client import BeginPermit, Requestor, ResponseStream, StreamOrigin
from tg_base.protocol import Route
from tg_base.telemetry import REFUSALS, trace
from tg_gateway.access import Payers, RateLimits, Spending
from tg_gateway.dialects import Ask, Batch, FieldNames, Output, Writer, append_output, split_output
from tg_gateway.relay.answer_metrics import AnswerMetrics
from tg_gateway.relay.batch_stream import BatchStream, ask_batch
from tg_gateway.relay.sink import Sink
from tg_gateway.telemetry import STREAMING, AccessLogEntry
from tg_schema import TgError
from tg_schema.errors import Cancelled, Internal, Unavailable

log = structlog.get_logger()

DEFECT_MESSAGE = "the gateway failed; its log says why, under the request's id"
MAX_PLACES = 4096
"""Services, by model and flow, whose metrics are found at once."""
DRAIN_ERROR_SECONDS = 1.0
"""Seconds that running requests get after the drain to send their error to the client."""


BeforeEnd = Callable[[], Awaitable[None]] | None
"""Awaited before the last bytes of an answer are sent; None = nothing is awaited."""
Responses = ResponseStream[Any] | BatchStream
"""The source of a relayed answer: one request, or several."""


class Exchange:
    """One request: enter it to ask, leave it to stop the work, wherever the work is done.

    Args:
        relay: counts it, from its creation to its end.
        ask: returns the context manager that sends the request.
        spending: its key's admitted reservation.
        metrics: the metrics of its answer.
        entry: its line in the log.
        fields: the client's names of the fields that an error may name.

    Attributes:
        responses: the answer's records, once it is entered.
        usage: what the request has used so far; None = not counted.
        metrics: as given.
        entry: as given.
        letters: characters of the text so far.
        stopped: whether an operator has ended it. It stays until its client has read everything before it.
    """

    # Not a generator, which would take 0.7 KiB for each stream.
    __slots__ = (
        "_ask", "_asked", "_fields", "_relay", "_spending", "entry", "letters", "metrics", "responses",
        "stopped", "usage",
    )  # fmt: skip

    def __init__(
        self,
        relay: "Relay",
        ask: Callable[[], AbstractAsyncContextManager[Responses]],
        spending: Spending,
        metrics: AnswerMetrics,
        entry: AccessLogEntry,
        *,
        fields: FieldNames | None,
    ) -> None:
        self.metrics = metrics
        self.entry = entry
        self.usage = spending.usage
        self.letters = 0
        self.stopped = False
        self.responses: Responses
        self._ask = ask
        self._fields = fields
        self._spending = spending
        self._relay = relay
        relay.running[self] = None

    async def __aenter__(self) -> Self:
        spending, self._asked = self._spending, self._ask()
        # A prompt may be long, and an answer may take minutes.
        del self._ask
        try:
            self.responses = await self._asked.__aenter__()
            # From here on a provider may have begun, and may bill it.
            spending.asked = True
        except TgError as error:
            self.metrics.errors += 1
            raise self.translate(error) from None
        finally:
            if not spending.asked:
                spending.__exit__(None, None, None)
                self._relay.end(self)
        self.entry.stream = self.responses.id
        trace.name_stream(self.responses.id)
        STREAMING.inc()
        if self._relay.left:
            self.responses.fail(_leaving())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        STREAMING.dec()
        self.entry.model = self.responses.model
        self._relay.end(self)
        if self.usage is not None:
            self.usage.request_bytes = self.responses.request_bytes
        try:
            await self._asked.__aexit__(kind, error, tb)
        finally:
            self._spending.__exit__(kind, error, tb)

    def fail(self, error: TgError) -> None:
        """End it with this error, if it has been asked."""
        if self._spending.asked:
            self.responses.fail(error)

    def translate(self, error: TgError) -> TgError:
        """The error, with fields named as the client named them."""
        return error if self._fields is None else self._fields.translate(error)

    def relay(self, writer: Writer[Any], sink: Sink, before_end: BeforeEnd = None) -> Coroutine[Any, Any, None]:
        """Write every record as it arrives, until the last, and what follows it.

        Args:
            writer: writes the answer.
            sink: the client's end.
            before_end: may store the answer.

        Raises:
            TgError: the stream failed; everything before was sent.
        """
        return _Pump(self, writer, sink, before_end).run()

    async def write_whole(self, writer: Writer[Any], before_end: BeforeEnd = None) -> Output:
        """The writer's answer from all records. `before_end` as of `relay`.

        Raises:
            TooLarge: it is larger than the writer keeps; the work is stopped.
            TgError: the stream failed.
        """
        whole = _WholeAnswer()
        await _Pump(self, writer, whole, before_end, measures=False).run()
        parts = [part for part in whole.parts if part]
        return parts[0] if len(parts) == 1 else tuple(parts)


class _WholeAnswer(Sink):
    """Collects what a client gets at the end."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    @property
    @override
    def full(self) -> bool:
        return False

    @override
    def send(self, data: Output, *, last: bool) -> None:
        self.parts += split_output(data)


class _Pump:
    """Sends records to a sink where they arrive: waking a task for each of them would double the cost.

    Its own task sleeps until there is something to wait for: a slow client, or the end. Where the client gets an answer
    record by record, the times between them are measured.
    """

    __slots__ = (
        "_before_end", "_end", "_entry", "_error", "_exchange", "_loop", "_measures", "_metrics", "_needed", "_over",
        "_responses", "_sent_at", "_sink", "_usage", "_writer",
    )  # fmt: skip

    def __init__(
        self, exchange: Exchange, writer: Writer[Any], sink: Sink, before_end: BeforeEnd, *, measures: bool = True
    ) -> None:
        self._before_end = before_end
        self._end: Output = b""
        self._measures = measures
        self._writer = writer
        self._exchange = exchange
        self._responses = exchange.responses
        self._metrics = exchange.metrics
        self._entry = exchange.entry
        self._usage = exchange.usage
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._needed = self._loop.create_future()
        self._error: Exception | None = None
        self._over = False
        self._sent_at = 0.0

    async def run(self) -> None:
        try:
            # Sends the records so far; the listener sends everything later, in the task that reads the bus.
            self._turn()
            self._responses.listen(self._turn)
            await self._needed
            while not self._over:
                # The client is slow. Until it has caught up, records are buffered in the stream, which bounds them.
                await self._caught_up()
                self._needed = self._loop.create_future()
                self._turn()
                await self._needed
        finally:
            self._responses.listen(None)
            self._sink.hold(0)
        try:
            self._metrics.errors += self._error is not None and not isinstance(self._error, Cancelled)
            if isinstance(self._error, TgError):
                raise self._exchange.translate(self._error)
            if self._error is not None:
                # Log it here and not where it was caught: only this task knows the request's id.
                log.error("gateway.defect", exc_info=self._error)
                raise Internal(DEFECT_MESSAGE)
        finally:
            # The traceback refers to this object. Without the circle, both are freed without the garbage collector.
            self._error = None
        if self._before_end is not None:
            await self._before_end()
            self._sink.send(self._end, last=True)

    async def _caught_up(self) -> None:
        while True:
            await self._sink.drain()
            if not self._sink.full:
                break
        self._sink.hold(0)

    def _turn(self) -> None:
        """Records have come. Called in the task that reads the bus: it must not block or raise."""
        # Our task has been woken and continues by itself; sending here too could overtake it.
        if self._needed.done():
            self._sink.hold(self._responses.waiting)
            return
        try:
            while (record := self._responses.poll()) is not None:
                data, last = self._writer.write(record), record.last
                # Count before the end is written: even an answer that a writer refuses as a whole was generated.
                self._entry.records += 1
                if last:
                    self._metrics.whole.observe(time.monotonic() - self._entry.started)
                # Text and thinking of a completion, text of a prompt, content of an agent: most records have the first.
                text = getattr(record, "response", None) or getattr(record, "reasoning", None)
                text = text or getattr(record, "text", None) or getattr(record, "content", None) or ""
                self._exchange.letters += len(text)
                self._metrics.letters += len(text)
                if self._usage is not None:
                    self._usage.add(record)
                data = append_output(data, self._writer.end()) if last else data
                if last and self._before_end is not None:
                    self._end = data
                else:
                    self._sink.send(data, last=last)
                if self._measures:
                    self._note_sent()
                if self._sink.full:
                    # The client is slow.
                    self._needed.set_result(None)
                    return
            self._over = self._responses.complete
        except Exception as error:  # noqa: BLE001 - `run` raises or logs it
            # Not `translate_defects`: this runs for every chunk.
            self._error, self._over = error, True
        if self._over:
            self._needed.set_result(None)

    def _note_sent(self) -> None:
        now = self._loop.time()
        if self._entry.records > 1:
            self._metrics.gap.observe(now - self._sent_at)
        else:
            self._entry.first = time.monotonic() - self._entry.started
            self._metrics.first_token.observe(self._entry.first)
        self._metrics.overhead.observe(now - self._responses.came)
        self._sent_at = now


class Relay:
    """All running requests of the gateway.

    Args:
        requestor: this process's end of the bus.
        timeout: seconds to the first record of an answer, and of silence between two.
        limits: what each key may use.
        callers: see `Authenticator`.
        payers: finds who is charged for each key's requests.

    Attributes:
        admission: knows which services have a processor.
        places: the metrics of each service, model and flow that was requested lately, by these names.
        running: requests that were sent, or are being sent now, the oldest first.
        reading: requests that are being read now, and may be sent next.
        draining: whether it refuses new requests.
        left: whether it ends requests that are just beginning.
    """

    def __init__(
        self,
        requestor: Requestor,
        timeout: float,
        limits: RateLimits,
        callers: Mapping[str, str],
        payers: Payers,
    ) -> None:
        self._requestor = requestor
        self._payers = payers
        self._callers = callers
        self._timeout = timeout
        self._limits = limits
        self.places: dict[tuple[str, str, str], AnswerMetrics] = {}
        self.admission = requestor.admission
        self.running: dict[Exchange, None] = {}
        self.reading = 0
        self._ended = asyncio.Event()
        self.draining = self.left = False

    async def until_served(self, route: Route[Any, Any]) -> bool:
        """In our first seconds, wait for a first processor of a service; False = none came, and `ask` will refuse."""
        try:
            return await self._requestor.until_served(route)
        except Unavailable:
            return False

    def ask(
        self, asked: Ask, entry: AccessLogEntry, permit: BeginPermit | None = None, *, kept: bool = False
    ) -> Exchange:
        """Make an exchange; enter it at once, and relay inside `async with`.

        Args:
            asked: the request, its service and its limits.
            entry: the line in the log.
            permit: asked before a processor may begin; not for several requests at once.
            kept: as for `Requestor.stream`; not for several requests at once.

        Raises:
            TgError: as `Requestor.stream`; Unavailable if the gateway is about to leave; RateLimited over a limit of
                the request's key (`entry.key`).
        """
        route, request = asked.route, asked.request
        name = route.spec.name
        if self.draining:
            REFUSALS.labels(name, "draining").inc()
            raise _leaving()
        place = name, route.model or "", route.flow
        metrics = self.places.get(place) or self._add_place(place)
        batch = request if isinstance(request, Batch) else Batch((request,))
        user: str | None = getattr(batch.requests[0], "user", None)
        if self._callers or user:
            trace.name_caller(self._callers.get(entry.key or ""), self._payers.describe(entry.key, user))
        exempt = entry.key in self._limits.exempt
        # Nothing may fail between this and the exchange, which ends the reservation.
        spending = Spending() if exempt else self._limits.admit(entry.key, name, *batch.requests)
        opening: Callable[[], AbstractAsyncContextManager[Responses]]
        if len(batch.requests) > 1:
            several = partial(ask_batch, self._requestor, route, batch, fields=asked.fields)
            opening = partial(several, timeout=self._timeout, places=spending.places)
        else:
            (request,), total = batch.requests, asked.deadline
            single = partial(self._requestor.stream, route, request, bounded=True, permit=permit, kept=kept)
            opening = partial(single, timeout=self._timeout, total=total)
        return Exchange(self, opening, spending, metrics, entry, fields=asked.fields)

    def _add_place(self, place: tuple[str, str, str]) -> AnswerMetrics:
        if len(self.places) >= MAX_PLACES:
            del self.places[next(iter(self.places))]
        return self.places.setdefault(place, AnswerMetrics(*place))

    def adopt(self, asked: Ask, entry: AccessLogEntry, origin: StreamOrigin, after: int) -> Exchange:
        """Read on in an answer, as `Requestor.adopt`; the caller enters the exchange at once.

        Limits and quotas are not applied again: they were applied when the request first arrived.
        """
        route = asked.route
        payer = self._payers.describe(entry.key, getattr(asked.request, "user", None))
        trace.name_caller(self._callers.get(entry.key or ""), payer)
        opening = partial(self._requestor.adopt, route, asked.request, origin, after, timeout=self._timeout)
        place = route.spec.name, route.model or "", route.flow
        metrics = self.places.get(place) or self._add_place(place)
        return Exchange(self, opening, Spending(), metrics, entry, fields=asked.fields)

    def end(self, exchange: Exchange) -> None:
        """An exchange is over."""
        self.running.pop(exchange, None)
        self._ended.set()

    async def drain(self, seconds: float) -> None:
        """Refuse new requests, give running ones this long, then end them with an error."""
        self.draining = True
        await self.until_idle(seconds)
        # A copy: each stream that ends removes itself.
        for exchange in list(self.running):
            exchange.fail(_leaving())
        self.left = True
        await self.until_idle(DRAIN_ERROR_SECONDS)

    async def until_idle(self, seconds: float, *, all_read: bool = False) -> None:
        """Return when no request runs, or after `seconds`.

        Args:
            seconds: how long to wait at most.
            all_read: also wait for requests that are still being read.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.running or (all_read and self.reading):
                    self._ended.clear()
                    await self._ended.wait()

    def note_read(self) -> None:
        """Note that a request counted in `reading` has been read."""
        self.reading -= 1
        self._ended.set()


def _leaving() -> Unavailable:
    return Unavailable("the gateway is shutting down; ask again", retry_after=1.0)
