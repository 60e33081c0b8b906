"""Inbox -> caller: one stream's responses, behind a bounded buffer."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, Generic, NamedTuple, Self

from typing_extensions import override

from tg_base.client.asked_call import AskedCall
from tg_base.client.begin_permit import BeginPermit
from tg_base.client.membership import Service
from tg_base.client.route_run import RouteRun
from tg_base.protocol import EncodedRequest, RequestHeaders, Route, StreamKey
from tg_base.runtime import LATE_SECONDS
from tg_base.telemetry import Attribute, Span, end_span, find_error, span_names
from tg_schema import TEXT_COMPLETION, TgError, decode
from tg_schema.codec import encode_request
from tg_schema.errors import BadRequest, Cancelled, ProtocolError, SlowConsumer, Timeout
from tg_schema.features import Feature
from tg_schema.pieces import MAX_EVENT_BYTES
from tg_schema.prompt_size import measure_text
from tg_schema.service_spec import Resp
from tg_schema.usage_record import BILLED_OPERATIONS

MAX_BUFFERED_BYTES = 1024 * 1024
"""Bytes of records buffered for a slow reader. A stream that exceeds it ends with SlowConsumer; no other does."""
ADOPTED = 1000
"""By how much the attempt of who adopts a stream is above that of who had it before: so all know the one under which
its processor has begun, and records its call."""


class StreamOrigin(NamedTuple):
    """Where a kept answer is made: the stream, the attempt under which its requestor has it, and the process."""

    stream: str
    attempt: int
    processor: str


class ResponseStream(AsyncIterator[Resp], Generic[Resp]):
    """One reader polls, and listens for when to poll again; iterating does that for a task.

    Buffered records are joined: a slow reader gets fewer and larger ones. A record's texts have at most
    `MAX_EVENT_BYTES`, so that every dialect can send it as one event. Only an object (of a JSON template) and a list of
    models come whole, whatever their size.

    The time begins anew with each sign of progress: a flowing answer never times out. One timer serves the whole
    stream; it is set anew when it fires too early, and not for each record.

    Args:
        stream: its id.
        record: the type of its records.
        timeout: seconds until the first record, without those in which its model is opened, and of silence between two.
        total: seconds for the whole answer; None = the limit of the model or the agent.
        whole: whether the answer is a single record; then an "accepted" frame counts as progress, like a record.

    Attributes:
        id: the stream's id, everywhere.
        relayed: whether a record has come, so that no other attempt may answer.
        complete: whether the last record has come.
        request_bytes: size of the request on the bus, in bytes.
        came: arrival time (loop time) of the oldest record in the last batch read.
        taken: frames that the reader has, or has begun to read.
        left: whether its work goes on when its reader leaves: another requestor adopts it.
        model: the model that was asked last, by its name in the configuration; None = not known.
        call: what its record of usage may need; None = it is no call of a model.

    Raises (by `poll`, and while iterating):
        TgError: the stream failed. Nothing follows.
    """

    __slots__ = (
        "__weakref__", "_accepted", "_began", "_cut_size", "_end", "_error", "_frames", "_loop", "_on_accepted",
        "_on_opening", "_opening", "_progress_at", "_record", "_records", "_size", "_timeout", "_timer", "_total",
        "_wake", "_whole", "call", "came", "complete", "id", "left", "model", "relayed", "request_bytes", "taken",
    )  # fmt: skip

    def __init__(
        self, stream: str, record: type[Resp], timeout: float, *, total: float | None = None, whole: bool = False
    ) -> None:
        self.id = stream
        self.relayed = False
        self.complete = False
        self.request_bytes = 0
        self.came = 0.0
        self.taken = 0
        self.left = False
        self.model: str | None = None
        self.call: AskedCall | None = None
        self._record = record
        # Lists, since an empty deque takes 0.7 KiB, for each of thousands of streams.
        self._frames: list[tuple[float, bytes]] = []
        self._size = 0
        self._cut_size = 0
        self._records: list[Resp] = []
        self._error: TgError | None = None
        self._wake: Callable[[], None] = _ignore
        self._accepted = False
        self._opening = False
        self._on_accepted: Callable[[], None] = _ignore
        self._on_opening: Callable[[], None] = _ignore
        self._loop = asyncio.get_running_loop()
        self._whole = whole
        self._timeout = timeout
        self._total = total
        self._began = now = self._loop.time()
        self._end = math.inf if total is None else now + total
        self._progress_at: float | None = None
        self._timer = self._loop.call_at(self._due + LATE_SECONDS, self._check_time, context=Context())

    @property
    def remaining(self) -> float:
        """Seconds until the stream times out, if nothing comes."""
        return self._due - self._loop.time()

    @property
    def _due(self) -> float:
        return min((self._began if self._progress_at is None else self._progress_at) + self._timeout, self._end)

    def _check_time(self) -> None:
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due + LATE_SECONDS, self._check_time, context=Context())
        elif self._due == self._end:
            self.fail(Timeout(f"no complete answer within {self._total:g} s"))
        else:
            what = "no answer" if self._progress_at is None else "nothing more of the answer"
            self.fail(Timeout(f"{what} came within {self._timeout:g} s"))

    @property
    def waiting(self) -> int:
        """Bytes that are buffered for the reader."""
        return self._size + (self._cut_size if self._records else 0)

    @property
    def origin(self) -> StreamOrigin | None:
        """Where the answer is made; None = not known yet."""
        return None

    @property
    def settled(self) -> bool:
        """Whether its reader has all of the `taken` frames."""
        return not self._records

    @property
    def failed(self) -> bool:
        """Whether an error at this end (a timeout, a full buffer, a dead processor) has ended the stream."""
        return self._error is not None

    def put(self, body: bytes, *, last: bool) -> bool:
        """Take the next record. False = the stream has failed, and nobody waits for the rest of the answer."""
        # Frames may still be in flight when the stream ends here; their sender is cancelled.
        if self.complete or self._error is not None:
            return self._error is None
        if not self.relayed:
            if not self._begin(body, last=last):
                return True
            self.relayed = True
        self._progress_at = now = self._loop.time()
        self._size += len(body)
        if (call := self.call) is not None:
            call.pieces += 1
            call.received += len(body)
            call.last, call.came_at, call.complete = body, now, last
        # A single record is accepted at any size: the bus has limited it already.
        if self._size > MAX_BUFFERED_BYTES and len(self._frames) > 1:
            self.fail(
                SlowConsumer("the reader did not keep up with the stream; read faster, or ask for a shorter answer")
            )
            return False
        self._frames.append((now, body))
        self.complete = last
        self._wake()
        return self._error is None

    def _begin(self, body: bytes, *, last: bool) -> bool:
        """Called with the first record; False = another model answers in its place."""
        return True

    def accept(self, *, opening: bool = False) -> None:
        """Note that a processor works on the request, or opens its model: the only progress of a whole answer."""
        if not self._accepted and not self.failed:
            if opening and not self._opening:
                self._opening = True
                self._on_opening()
            elif not opening:
                self._accepted = True
                self._on_accepted()
        if self._whole:
            self._progress_at = self._loop.time()
        elif opening:
            self._began = self._loop.time()

    def fail(self, error: TgError) -> None:
        """End the stream: the reader gets the buffered records, then the error."""
        if not self.complete and self._error is None:
            self._error = error
            self._wake()

    def close(self) -> None:
        """The reader has left."""
        self._timer.cancel()
        left = SlowConsumer("the stream was closed by its reader")
        self.fail(left)
        if self.failed:
            # A raised error's traceback refers to this object: another cycle.
            self._error = left

    def poll(self) -> Resp | None:
        """The next record, without waiting; None if none is buffered, or after the last one (`complete`).

        Raises:
            TgError: the stream failed. Nothing follows.
        """
        if not self._records and self._frames:
            self._join_waiting()
        if not self._records:
            if self._error is not None:
                raise self._error
            return None
        record = self._records.pop()
        if record.error is not None:
            raise TgError.of(record.error)
        return record

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call `listener`, instead of the one before, when a record arrives or the stream fails.

        Called synchronously on arrival; it must not raise or block. Saves one task wake-up per record.
        """
        self._wake = listener or _ignore

    def listen_accepted(self, listener: Callable[[], None], on_opening: Callable[[], None] | None = None) -> None:
        """Call `listener` once, when a processor says that it works on the request; now, if it has said so already.

        A processor says so if its first record takes longer than `ACCEPTED_AFTER_SECONDS`. If it opens its model first,
        `on_opening` is called in the same way before that. As with `listen`, they must not raise or block.
        """
        self._on_accepted, self._on_opening = listener, on_opening or _ignore
        if self._opening:
            self._on_opening()
        if self._accepted:
            listener()

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> Resp:
        while (record := self.poll()) is None:
            if self.complete:
                raise StopAsyncIteration
            await self._come()
        return record

    async def _come(self) -> None:
        woken = self._loop.create_future()
        # Several records may come before the task has its turn.
        self.listen(lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            self.listen(None)

    def _join_waiting(self) -> None:
        """Join the buffered records, and cut records that are too long for one event."""
        self.came, body = self._frames[0]
        try:
            # A reader that keeps up nearly always has one record waiting.
            if len(self._frames) == 1 and len(body) <= MAX_EVENT_BYTES:
                self._frames.clear()
                self.taken += 1
                self._size = self._cut_size = 0
                self._records.append(decode(self._record, body))
            else:
                self._join_several()
        except BadRequest:
            self._frames.clear()
            self._size = 0
            self._error = ProtocolError("a response on the bus is not a record of its service")

    def _join_several(self) -> None:
        _, body = self._frames[0]
        bodies, size = [body], len(body)
        for _, body in self._frames[1:]:
            if size + len(body) > MAX_EVENT_BYTES:
                break
            bodies.append(body)
            size += len(body)
        del self._frames[: len(bodies)]
        self._size -= size
        self.taken += len(bodies)
        # A record that is cut stays in memory until its last piece is read, so it stays counted.
        self._cut_size = size if size > MAX_EVENT_BYTES else 0
        records = self._record.join([decode(self._record, body) for body in bodies])
        if size > MAX_EVENT_BYTES:
            records = [piece for record in records for piece in record.cut(MAX_EVENT_BYTES)]
        # The records are in reverse order here: the next one is the last of the list.
        self._records = [*reversed(records)]


class Terms(NamedTuple):
    """How long a caller waits, as `Requestor.stream` explains, and what it is asked before a processor may begin.

    `run` is the request's way through a route; None = one model is asked. `fall_back` asks the run's next model for a
    stream in place of an error; False = there is none. `kept`: the answer goes on for a while if we die.
    """

    timeout: float
    total: float | None
    permit: BeginPermit | None
    run: RouteRun | None = None
    fall_back: Callable[["AskedStream", TgError], bool] | None = None
    kept: bool = False


class AskedStream(ResponseStream[Any]):
    """A stream that was asked for, with its encoded request.

    Args:
        stream: its id.
        span: the span of the request, in its trace.
        route: the service.
        request: the request's record, as it is or encoded.
        terms: how long its caller waits.
        needed: the features that the request needs.
        time: the requestor's clock, in seconds.

    Attributes:
        span: the span of the request, in its trace.
        route: the service.
        body: the encoded request, kept for further attempts: until the first record.
        attempt: number of the current one, from 1.
        asked_at: when the current attempt began, by the requestor's clock.
        deaths: processors of the model that is asked that have lost it.
        silenced: processors that fell silent while they had it.
        processor: the processor that answers the current attempt; None = none so far.
        link: number of the link that carries its answer.
        fetched: whether a processor has asked for the body in parts.
        fetching: whether it still does; once it has all, it asks for a confirmation.
        cache_key: the cache key of the request; None = it has none.
        direct: the process that the current attempt was sent to; None = it was queued.
        place: the processor whose free slots it is counted against, if it has a cache key.
        permit: asked before a processor may begin; None = processors begin at once.
        run: as in its terms.
        kept: as in its terms.
        adopted: whether another requestor asked for it.
    """

    __slots__ = (
        "_accepted_attempt", "_fall_back", "_time", "adopted", "asked_at", "attempt", "body", "cache_key", "deaths",
        "direct", "fetched", "fetching", "kept", "link", "permit", "place", "processor", "route", "run", "silenced",
        "span",
    )  # fmt: skip

    def __init__(
        self,
        stream: str,
        span: Span,
        route: Route[Any, Any],
        request: object,
        terms: Terms,
        *,
        needed: frozenset[Feature],
        time: Callable[[], float],
    ) -> None:
        whole = not getattr(request, "streaming", True)
        super().__init__(stream, route.spec.response, terms.timeout, total=terms.total, whole=whole)
        operation = getattr(request, "operation", None)
        is_call = route.spec is TEXT_COMPLETION and operation in BILLED_OPERATIONS
        prompt = _measure_prompt(request, needed) if is_call else 0
        self.span = span
        self._time = time
        self.asked_at = time()
        self.route, self.model = route, route.model
        self.body = request.body if isinstance(request, EncodedRequest) else encode_request(request)
        self.request_bytes = len(self.body)
        self.attempt = 1
        self._accepted_attempt = 0
        self.deaths = self.silenced = 0
        self.processor: str | None = None
        self.link = 0
        self.fetched = self.fetching = False
        self.cache_key: str | None = getattr(request, "cache_key", None)
        self.direct: str | None = None
        self.place: Service | None = None
        self.permit = terms.permit
        self.run, self._fall_back = terms.run, terms.fall_back
        self.kept, self.adopted = terms.kept, False
        if is_call:
            prompt, now = prompt or self.request_bytes, self._loop.time()
            self.call = AskedCall(span, operation or "completion", prompt, now, now)

    @property
    def begun(self) -> bool:
        """Whether no other processor may be asked, because one has answered, or may have begun under a permit."""
        return self.relayed or (self.permit is not None and self.permit.begun)

    @property
    def key(self) -> StreamKey:
        """The current attempt."""
        return StreamKey(self.id, self.attempt)

    @property
    @override
    def origin(self) -> StreamOrigin | None:
        return None if self.processor is None else StreamOrigin(self.id, self.attempt, self.processor)

    def headers(self, inbox: str, *, in_parts: bool) -> RequestHeaders:
        """The headers of its request, to be answered to `inbox`."""
        key, size = self.key, len(self.body) if in_parts else 0
        remaining = max(self.remaining, 0.0)
        return RequestHeaders(key, inbox, remaining, span=self.span, size=size, kept=self.kept)

    def put_plain(self, body: bytes) -> None:
        """Take the next record of a plain peer."""
        try:
            last = decode(self.route.spec.response, body).last
        except BadRequest:
            # The frame is unreadable: the stream's reader gets the error, and must not wait for more.
            last = True
        self.put(body, last=last)

    def see_call(self, error: str | None = None) -> AskedCall | None:
        """The call of its current attempt, which this error has ended; None = it is no call of a model."""
        if (call := self.call) is not None:
            call.error = error
            call.flow, call.model = self.route.flow, self.route.model or ""
            call.attempt, call.processor = self.attempt % ADOPTED, self.processor
            call.begun = self._accepted_attempt == self.attempt or call.pieces > 0
        return call

    def begin_attempt(self) -> None:
        """Begin another attempt: late frames of the earlier one no longer match, and make us cancel their sender."""
        self.attempt += 1
        self.asked_at = self._time()
        self.processor = self.direct = None
        if self.permit is not None:
            self.permit.granted = False
        self.place_at(None)

    def place_at(self, place: Service | None) -> None:
        """Count it against this processor alone; None = against none."""
        if self.place is not None:
            self.place.keyed -= 1
        self.place = place
        if place is not None:
            place.keyed += 1

    def note_returned(self) -> None:
        """Note that its processor returned the request without beginning it."""
        if self.permit is not None:
            self.permit.begun = self.permit.works = False

    def end_span(self, error: BaseException | None) -> None:
        """Record the span of the request, for a caller that leaves with this error."""
        attributes: dict[str, Attribute] = {
            span_names.FLOW: self.route.flow,
            span_names.STREAM_ID: self.id,
            span_names.PROCESSOR: self.processor,
            span_names.ATTEMPT: self.attempt,
        }
        left = Cancelled.type if error is None and not self.complete else ""
        end_span(self.span, f"ask {self.route.spec.name}", "client", attributes, left or find_error(error))

    @override
    def accept(self, *, opening: bool = False) -> None:
        if self.permit is not None:
            self.permit.works = self.permit.begun
        if not opening:
            self._accepted_attempt = self.attempt
        super().accept(opening=opening)

    @override
    def _begin(self, body: bytes, *, last: bool) -> bool:
        if self.run is not None and self._fall_back is not None:
            error = self._find_error(body) if last else None
            self.run.note(error)
            if error is not None and self._fall_back(self, error):
                return False
        # Nobody else will be asked. A prompt may be long, and an answer may take minutes.
        self.body = b""
        return True

    def _find_error(self, body: bytes) -> TgError | None:
        # An unreadable record is an error for the reader, who finds it in turn.
        with suppress(BadRequest):
            error = decode(self.route.spec.response, body).error
            return None if error is None else TgError.of(error)
        return None


def _measure_prompt(request: Any, needed: frozenset[Feature]) -> int:
    """Bytes of the prompt's text; 0 = it is a conversation, which would take too long."""
    if isinstance(request, EncodedRequest):
        return request.text_bytes
    if "images" in needed:
        # Their JSON is no measure.
        return measure_text(request)
    if request.messages or request.tools or request.prompt_ids or request.texts or request.id_lists:
        return 0
    return len(request.prompt or "") + len(request.system or "")


def _ignore() -> None:
    """Nobody listens."""
