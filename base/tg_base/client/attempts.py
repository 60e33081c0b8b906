"""Frames, deaths and silence -> the attempts at each stream: one continues, another follows, or the stream fails.

A stream is bound to the first processor that accepts it. It is retried while nothing has arrived, continued elsewhere
if its model allows that, and otherwise falls back to the next model of its route.
"""

import asyncio
from collections import deque
from contextlib import suppress

import structlog

from tg_base.bus import Bus, Delivery
from tg_base.client.admission import AdmissionControl
from tg_base.client.asked_stream import AskedStream
from tg_base.client.call_account import CallAccount
from tg_base.client.control_sender import ControlSender
from tg_base.client.liveness import Liveness
from tg_base.client.request_sender import RequestSender
from tg_base.client.route_plans import RouteRun
from tg_base.client.warm_processes import WarmProcesses
from tg_base.protocol import MAX_NUMBER, AwakeClock, Frame, Presence, StreamKey, publish_dead_letter
from tg_base.runtime import start_task
from tg_base.telemetry import ATTEMPTS
from tg_schema import TgError, decode
from tg_schema.errors import BadRequest, BusError, RateLimited, Unavailable
from tg_schema.features import CONTINUATION
from tg_schema.response import Response
from tg_schema.topics import Topics

log = structlog.get_logger()

MAX_ATTEMPTS = 3
"""A request without output fails when this many processors have lost it.

Silence alone never gets that far: the second silent processor ends the request.
"""
MAX_SILENCED = 2
"""Processors that may fall silent over a request. One may have been killed or cut off by chance; a second one is no
coincidence."""
ADOPTION_SECONDS = 5.0
"""Seconds within which a processor must say that it has an answer which we adopt; older versions say nothing."""
_NOT_ADOPTED = Unavailable("the processor does not have the answer any more; ask again")
MAX_LEFT = 1024
"""How many streams that another requestor adopts are remembered, the newest ones: their late frames must not cancel the
work. Frames are late by seconds at most, and our cancel counts no more once the stream is adopted."""


class Attempts:
    """The attempts of one requestor.

    Args:
        bus: carries the dead letters.
        topics: the names of our own topics.
        clock: measures silence.
        controls: sends to processors.
        streams: the running streams, by their ids.
        sender: sends the requests.
        warm: knows which process has a request's prefix in memory.
        liveness: knows which processes are dead.
        admission: knows the capacity of each queue.
        calls: writes the records that dead processes cannot write.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        clock: AwakeClock,
        controls: ControlSender,
        *,
        streams: dict[str, AskedStream],
        sender: RequestSender,
        warm: WarmProcesses,
        liveness: Liveness,
        admission: AdmissionControl,
        calls: CallAccount,
    ) -> None:
        self._bus, self._topics, self._clock, self._controls = bus, topics, clock, controls
        self._streams, self._sender, self._warm = streams, sender, warm
        self._liveness, self._presence, self._admission = liveness, liveness.presence, admission
        self._calls = calls
        # Streams that another requestor adopts: their late frames must not cancel the work.
        self._left: deque[str] = deque(maxlen=MAX_LEFT)
        self._asking: set[asyncio.Task[object]] = set()

    def shut_down(self) -> None:
        """End all streams, and tell their processors."""
        for stream in list(self._streams.values()):
            stream.fail(Unavailable("this process is shutting down; ask again"))
            self._cancel(stream)
        for task in self._asking:
            task.cancel()

    def close(self, stream: AskedStream) -> None:
        """The caller has left: stop the work, if it is not complete."""
        attempt = stream.attempt
        del self._streams[stream.id]
        if stream.sending is not None:
            stream.sending.cancel()
        self._admission.unanswered[attempt.route.request] -= 1
        if not stream.complete:
            self._cancel(stream)
            if stream.shadow is not None:
                stream.shadow.cancel()
        if stream.left:
            # The requestor that adopts the stream sees, and records, the whole call.
            self._left.append(stream.id)
        else:
            self._calls.close(attempt)
        attempt.place_at(None)
        if stream.run is not None:
            stream.run.leave()
        stream.close()

    def stop(self, stream: AskedStream) -> None:
        """Stop the work on a stream now, not only when its caller leaves."""
        # If its processor dies before it ends the answer, no other one is asked.
        stream.deaths = MAX_ATTEMPTS
        self._cancel(stream)

    def _cancel(self, stream: AskedStream) -> None:
        attempt = stream.attempt
        if stream.left:
            return
        if attempt.processor is not None:
            self._controls.cancel(attempt.processor, attempt.key)
        else:
            self._cancel_queued(stream)

    def _cancel_queued(self, stream: AskedStream) -> None:
        attempt = stream.attempt
        queue, direct = attempt.route.request, attempt.direct
        serving = self._presence.processors(queue) if direct is None else (direct,)
        self._controls.cancel_queued(serving, attempt.key, max(stream.remaining, 0.0))

    def on_frame(self, processor: str, link: int, frame: Frame) -> None:
        """Take a frame of another kind than the later records of an answer."""
        stream = self._find(processor, frame)
        if stream is None:
            # After a last frame there is nothing to stop.
            if not (frame.last or frame.stream in self._left):
                self._controls.cancel(processor, StreamKey(frame.stream, frame.attempt))
            return
        attempt = stream.attempt
        # Only the first time: a processor repeats this, and by then a later request of the key may be elsewhere.
        if attempt.processor is None and stream.cache_key is not None and frame.kind != "returned":
            self._warm.note_taken(stream, processor)
        attempt.processor, attempt.link = processor, link
        match frame.kind:
            case "record" | "end":
                if not self._take(stream, bytes(frame.record), last=frame.last) and not frame.last:
                    self._cancel(stream)
            case "accepted":
                stream.accept(opening=frame.opening)
            case "confirm":
                attempt.fetching = False
                self._sender.confirm(stream, processor, frame.question)
            case "fetch":
                attempt.fetching = True
                self._sender.fetch(stream, processor, frame.question)
            case "returned":
                self._on_returned(stream)

    def _find(self, processor: str, frame: Frame) -> AskedStream | None:
        """The stream of a frame; None = the stream is over, or the frame is of another attempt or processor.

        The first processor whose frame of the current attempt arrives owns the stream. Any other one is cancelled, so
        that no answer is ever stitched from two.
        """
        stream = self._streams.get(frame.stream)
        if stream is None or stream.attempt.key.attempt != frame.attempt:
            return None
        return stream if stream.attempt.processor in (None, processor) else None

    def on_plain(self, delivery: Delivery) -> None:
        """Take a record of a plain peer."""
        stream = self._streams.get(delivery.properties.get("id", ""))
        if stream is not None and stream.attempt.processor is None:
            record = _decode(stream, delivery.body)
            # If it is unreadable, the stream's reader gets the error, and must not wait for more.
            self._take(stream, delivery.body, last=record is None or record.last)

    def _take(self, stream: AskedStream, body: bytes, *, last: bool) -> bool:
        """Pass a record on; False = nobody waits for the rest of the answer.

        If the first one is an error, another model may be asked in its place.
        """
        if not (stream.attempt.answered or stream.failed) and not self._begin(stream, body, last=last):
            return True
        return stream.put(body, last=last)

    def _begin(self, stream: AskedStream, body: bytes, *, last: bool) -> bool:
        """Note how the answer of an attempt begins; False = this record is not for the reader."""
        # An unreadable record is an error for the reader, who finds it in turn.
        record = _decode(stream, body) if last and (stream.run or stream.texts) else None
        error = None if record is None or record.error is None else TgError.of(record.error)
        if stream.texts:
            if isinstance(error, BadRequest):
                # The other processor cannot continue exactly after the last record.
                stream.fail(error)
                return False
        elif stream.run is not None:
            stream.run.note(error)
            if error is not None and self._fall_back(stream, error):
                return False
        stream.death = None
        if stream.attempt.sent is None:
            stream.forget_request()
        return True

    def _on_returned(self, stream: AskedStream) -> None:
        """The processor has not begun, because its slots were taken meanwhile."""
        if (permit := stream.terms.permit) is not None:
            permit.begun = permit.works = False
        if stream.failed or stream.attempt.answered:
            # A processor returns an answer that has begun only if we adopt it.
            stream.fail(_NOT_ADOPTED)
        elif stream.attempt.direct is not None:
            self._warm.note_returned(stream)
            self._follow(stream)
        else:
            self._ask_elsewhere(stream)

    def check(self, dead: dict[str, tuple[Presence, ...]], lost: set[str]) -> None:
        """Go on with the streams of processes that are found dead, or whose messages are lost."""
        self._calls.check((stream.attempt for stream in self._streams.values()), dead)
        for stream in [stream for stream in self._streams.values() if not (stream.failed or stream.complete)]:
            self._check(stream, dead, lost)

    def _check(self, stream: AskedStream, dead: dict[str, tuple[Presence, ...]], lost: set[str]) -> None:
        """Retry a dead processor's stream elsewhere if nothing was relayed; fail it otherwise.

        The same holds for a stream on a link that its processor has closed, because it believed us dead.
        """
        attempt = stream.attempt
        processor = attempt.processor
        if attempt.begun_as and attempt.link == MAX_NUMBER and self._clock() > attempt.asked_at + ADOPTION_SECONDS:
            stream.fail(_NOT_ADOPTED)
        elif processor in lost:
            self._lose(stream, BusError("a part of the answer was lost on the bus; ask again"))
        elif processor in dead:
            if not self._refuse_silenced(stream):
                self._give_up(stream, Unavailable("the processor died in the middle of the answer; ask again"))
        elif processor is not None and attempt.link < self._presence.over_below(processor):
            self._give_up(stream, Unavailable("the processor lost contact with this process and stopped; ask again"))
        elif processor is None and attempt.direct is not None:
            if self._warm.is_over(stream, dead, self._clock()):
                self._cancel_queued(stream)
                self._follow(stream)
        elif processor is None and not attempt.route.plain:
            self._check_queued(stream, dead)

    def _check_queued(self, stream: AskedStream, dead: dict[str, tuple[Presence, ...]]) -> None:
        """Publish a request again if it was probably taken by a processor that died or is partitioned."""
        attempt = stream.attempt
        queue, asked_at = attempt.route.request, attempt.asked_at
        if self._presence.is_unserved(queue):
            self._lose(stream, self._liveness.make_unserved_error(attempt.route))
        elif self._liveness.is_lost(queue, asked_at, dead):
            # A processor that takes the first copy later will find it cancelled.
            self._cancel_queued(stream)
            taken = self._liveness.is_taken(queue, asked_at, dead)
            if taken:
                self._calls.lose(attempt, dead)
            if not (taken and self._refuse_silenced(stream)):
                self._ask_elsewhere(stream)

    def _refuse_silenced(self, stream: AskedStream) -> bool:
        """Note that a processor fell silent while it had this request; True if it was the last one to get it.

        Such a request is kept as a dead letter for the operator.
        """
        stream.silenced += 1
        if stream.begun or stream.silenced < MAX_SILENCED:
            return False
        attempt = stream.attempt
        queue, number = attempt.route.request, attempt.key.attempt
        reason = f"{stream.silenced} processors fell silent while they had this request, so no other one gets it"
        log.warning("stream.silenced", **attempt.span.fields, attempt=number, processor=attempt.processor)
        start_task(self._asking, publish_dead_letter(self._bus, self._topics, queue, stream.body, reason))
        stream.fail(BadRequest(f"{reason}; change it, or ask the operator, who finds it among the dead letters"))
        return True

    def _give_up(self, stream: AskedStream, error: TgError) -> None:
        """Ask another processor if none may have begun or it can continue, and attempts are left; otherwise fail."""
        stream.deaths += 1
        if stream.deaths >= MAX_ATTEMPTS or (stream.begun and not self._go_on(stream, error)):
            self._end(stream, error)
        else:
            self._ask_elsewhere(stream)

    def _go_on(self, stream: AskedStream, error: TgError) -> bool:
        """Whether another processor can continue the answer, of which this error has ended an attempt."""
        announced = self._admission.find(stream.attempt.route.request)
        able = announced.served and CONTINUATION in announced.features and stream.silenced < MAX_SILENCED
        if not able or not stream.go_on(error):
            return False
        log.warning("stream.continued", **stream.attempt.span.fields, characters=sum(map(len, stream.texts)))
        return True

    def _lose(self, stream: AskedStream, error: TgError) -> None:
        """End the work of a stream's model, and end the stream with this error unless another model answers."""
        self._cancel(stream)
        self._end(stream, error)

    def _end(self, stream: AskedStream, error: TgError) -> None:
        """Ask another model, or end the stream with this error; no other processor of its model is asked."""
        if not self._fall_back(stream, error):
            stream.fail(error)

    def _fall_back(self, stream: AskedStream, error: TgError) -> bool:
        """Ask the next model of a stream's route instead of ending the stream; False = there is none."""
        run = stream.run
        if run is None or stream.begun or stream.failed or not self._find_next(stream, run, error):
            return False
        failed, route, stream.deaths = stream.attempt.route, run.route, 0
        names = {"route": run.plan.name, "failed": failed.model, "following": route.model}
        log.warning("route.fallback", **stream.attempt.span.fields, **names, error=error.type)
        self._admission.unanswered[failed.request] -= 1
        self._admission.unanswered[route.request] += 1
        self._follow(stream)
        stream.attempt.route = route
        return True

    def _find_next(self, stream: AskedStream, run: RouteRun, error: TgError) -> bool:
        """Move a run to the next model whose queue has capacity; False = there is none."""
        while run.go_on(error):
            with suppress(RateLimited):
                if stream.terms.bounded:
                    self._admission.check(run.route, self._admission.find(run.route.request))
                return True
            run.leave()
        return False

    def _ask_elsewhere(self, stream: AskedStream) -> None:
        attempt = stream.attempt
        route, number = attempt.route, attempt.key.attempt + 1
        if self._presence.is_unserved(route.request):
            self._lose(stream, self._liveness.make_unserved_error(route))
            return
        log.warning("stream.attempt", **attempt.span.fields, attempt=number, processor=attempt.processor)
        ATTEMPTS.labels(route.spec.name).inc()
        self._follow(stream)

    def _follow(self, stream: AskedStream) -> None:
        """Begin the next attempt, through the queue."""
        stream.begin_attempt(self._clock())
        start_task(self._asking, self._ask_again(stream))

    async def _ask_again(self, stream: AskedStream) -> None:
        attempt = stream.attempt
        try:
            await self._sender.ask(stream, self._admission.find(attempt.route.request))
        except TgError as error:
            # The error may come late: when a processor answers all the same, or when a later attempt decides.
            if stream.attempt is attempt and attempt.processor is None:
                self._lose(stream, error)


def _decode(stream: AskedStream, body: bytes) -> Response | None:
    """Decode a record of a stream; None = these bytes are no record."""
    with suppress(BadRequest):
        record: Response = decode(stream.attempt.route.spec.response, body)
        return record
    return None
