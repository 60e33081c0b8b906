"""Processor -> service -> responder: one request, from its confirmation to its single terminal record."""

import asyncio
import math
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Final, cast

import msgspec
import structlog

from tg_base.protocol import RequestHeaders, Route
from tg_base.runtime import MAX_QUICK_BYTES, is_set_within, translate_defects
from tg_base.server.body_receiver import BodyReceiver
from tg_base.server.responder import Responder, send_failure
from tg_base.server.service import Service, Unreadable
from tg_base.server.slots import Slot
from tg_base.telemetry import Attribute, Span, end_span, find_stream_counter, new_number, span_names, trace
from tg_schema import TgError
from tg_schema.errors import BusError, Cancelled, Internal, Timeout
from tg_schema.response import Response

log = structlog.get_logger()

DEFAULT_DEADLINE_SECONDS = 1800.0
"""Seconds for a plain peer's request without a deadline: a plain peer cannot cancel it."""
DEFECT_MESSAGE = "the service failed; its log says why, under the stream's id"
CONFIRM_INTERVAL_SECONDS = 1.0
"""Seconds between two requests for confirmation."""
_DEFECTS: Final = translate_defects(Internal, DEFECT_MESSAGE, "request.defect", log)


class RequestTask:
    """The work on one request. It belongs to the task that creates it; any other task of the loop may call `stop`.

    Args:
        service: answers the request.
        route: the service and flow that were asked.
        call: the request's headers.
        slot: the request's slot, taken once the answer is known to be wanted, unless it was taken before.
        came: when the request arrived, by the loop's clock.
        patience: seconds for which the answer counts as wanted, from the request's arrival or the last question. After
            that the requestor may have asked another processor.
        bodies: fetches the body of a large request.
        processor: the id of the processor that runs it.

    Attributes:
        processor: as given.
        unreadable: a body that is not a request, and why; None = the body is a request, or was not read yet.
        answered: whether the service has answered it.
        failure: the error that the service has raised in place of an answer, or in the middle of one.
    """

    __slots__ = (
        "_bodies", "_call", "_confirmed", "_deadline", "_ending", "_leaving", "_patience", "_questions", "_route",
        "_service", "_slot", "_wanted", "_wanted_at", "answered", "failure", "processor", "task", "unreadable",
    )  # fmt: skip

    def __init__(
        self,
        service: Service[Any, Any],
        route: Route[Any, Any],
        call: RequestHeaders,
        slot: Slot,
        *,
        came: float,
        patience: float,
        bodies: BodyReceiver,
        processor: str,
    ) -> None:
        self.processor = processor
        self.task = cast("asyncio.Task[None]", asyncio.current_task())
        self._service = service
        self._route = route
        self._call = call
        self._slot = slot
        self._ending: TgError | None = None
        self._leaving = False
        self._deadline: asyncio.TimerHandle | None = None
        self._wanted = call.fresh or call.reply is None
        self._wanted_at = came
        self._confirmed: asyncio.Event | None = None
        self._patience = patience
        self._bodies = bodies
        # The time of each question, by its number; most requests need no question.
        self._questions: dict[int, float] | None = None
        self.unreadable: tuple[bytes, str] | None = None
        self.answered = False
        self.failure: TgError | None = None

    @property
    def inbox(self) -> str | None:
        """The requestor's inbox; None = a plain peer."""
        return self._call.reply

    @property
    def unconfirmed(self) -> bool:
        """Whether it waits for the requestor to confirm it."""
        return not self._wanted

    def confirm(self, question: int) -> None:
        """The requestor has confirmed that question. A late confirmation proves nothing and is ignored."""
        asked_at = None if self._questions is None else self._questions.get(question)
        if asked_at is not None and asyncio.get_running_loop().time() - asked_at < self._patience:
            self._wanted, self._wanted_at = True, asked_at
            if self._confirmed is not None:
                self._confirmed.set()

    def stop(self, ending: TgError | None = None) -> None:
        """Close the service's stream now; its last record is `ending`."""
        self._ending = ending or self._ending
        self.task.cancel()

    def leave(self, ending: TgError) -> None:
        """Hand the request back for another processor if it was not begun; otherwise stop, as `stop(ending)` does."""
        # A plain peer would wait for ever: nobody publishes its request again.
        self._leaving = self._call.reply is not None
        self.stop(ending)

    async def run(self, request: Any | bytes, responder: Responder) -> None:
        """Forward the responses. Exactly one terminal record is sent, whatever happens.

        Args:
            request: the record, or the body of a large one; without one it is fetched.
            responder: sends the responses.
        """
        loop = asyncio.get_running_loop()
        started, outcome, begun, span = loop.time(), "ok", False, None
        remaining = self._call.remaining
        seconds = DEFAULT_DEADLINE_SECONDS if remaining is None else remaining
        self._deadline = loop.call_later(seconds, self._expire)
        try:
            with _DEFECTS:
                beginning = self._begin(request, responder)
                # A prompt may be long, and an answer may take minutes: the service keeps the parts of the request that
                # it needs.
                del request
                try:
                    records = await beginning
                    if trace.share is not None:
                        span = self._enter_span(loop.time() - started)
                    # Even a coroutine that has ended takes 232 bytes.
                    del beginning
                    begun = True
                    # The deadline no longer counts once the request has begun: our requestors cancel what they no
                    # longer want. Plain peers cannot.
                    if self._call.reply is not None:
                        self._end_deadline()
                    if records is not None:
                        await _forward(records, responder)
                        self.answered = True
                finally:
                    self._end_deadline()
        except asyncio.CancelledError:
            ending = self._ending or Cancelled("the request was cancelled")
            outcome = ending.type
            if self._leaving and not begun:
                responder.signal("returned")
            else:
                if self._leaving:
                    # Say first that work has begun: the error that follows does not say it.
                    responder.signal("accepted")
                await self._fail(responder, ending)
        except TgError as error:
            # Errors before the service is asked, and errors of the bus, are no failures of its model.
            outcome, self.failure = error.type, error if begun and not isinstance(error, BusError) else None
            await self._fail(responder, error)
        finally:
            service, flow = self._route.spec.name, self._route.flow
            find_stream_counter(service, outcome).inc()
            seconds = round(loop.time() - started, 6)
            log.info("request.done", service=service, flow=flow, outcome=outcome, seconds=seconds)
            if span is not None:
                self._end_span(span, "" if outcome == "ok" else outcome)

    def _enter_span(self, waited: float) -> Span | None:
        """Record the wait, and enter the span of the service's own work; None = it has none, or is not recorded."""
        wait = trace.below()
        if wait is None:
            return None
        began = wait.began - int((waited + (self._call.delay or 0.0)) * 1e9)
        name = self._route.spec.name
        end_span(msgspec.structs.replace(wait, began=began), "queue", attributes={span_names.PROCESSOR: self.processor})
        span = trace.below() if span_names.SERVICE_OPERATIONS.get(name, name) else None
        if span is not None:
            trace.enter(span)
        return span

    def _end_span(self, span: Span, error: str) -> None:
        name, flow = self._route.spec.name, self._route.flow
        operation = span_names.SERVICE_OPERATIONS.get(name, name)
        about: dict[str, Attribute] = {span_names.ATTEMPT: self._call.key.attempt}
        if operation != name:
            about |= {span_names.OPERATION: operation, span_names.AGENT_NAME: flow}
        end_span(span, f"{operation} {flow}", "internal", about, error)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self.stop(Timeout("the request's deadline has passed"))

    async def _begin(self, request: Any | bytes, responder: Responder) -> AsyncGenerator[Response, None] | None:
        """Confirm, take a slot, fetch the body of a large request, and ask the service.

        A request holds no slot while its confirmation is pending. If none is free afterwards, it is returned: None.
        """
        if not self._wanted:
            await self._until_wanted(responder)
        if not (self._slot.taken or await self._slot.take()):
            responder.signal("returned")
            return None
        # This process may have been suspended after the confirmation, or after the arrival of a fresh request.
        await self._until_wanted(responder)
        service = self._service
        responder.accept(lambda: service.loading)
        if isinstance(request, bytes):
            request = await self._read(request, responder)
            # Reading may take long, too.
            await self._until_wanted(responder)
        return service.on_request(request)

    async def _read(self, body: bytes, responder: Responder) -> Any:
        """The record of a large request.

        Raises:
            TgError: the body is not such a record, or is refused.
        """
        if not body:
            body = await self._bodies.fetch(self._call.key, self._call.size, partial(responder.signal, "fetch"))
            # While the body was on its way this process may have been suspended, and the requestor may have asked
            # another processor.
            self._wanted = False
            await self._until_wanted(responder)
        try:
            # Small requests that need a permit also arrive here; decoding them inline is faster than in a worker.
            if len(body) <= MAX_QUICK_BYTES:
                return self._service.decode(body)
            return await self._service.read(body)
        except Unreadable as error:
            self.unreadable = body, error.message
            raise

    async def _until_wanted(self, responder: Responder) -> None:
        """Ask the requestor to confirm a possible redelivery, so that no request is run (and billed) twice."""
        clock = asyncio.get_running_loop().time
        # One of our requestors may ask another processor after a while; a plain peer never does.
        patience = math.inf if self._call.reply is None else self._patience
        # A new number for each question: the reply to an earlier one may be older than the requestor's next attempt.
        while not self._wanted or clock() - self._wanted_at >= patience:
            self._wanted = False
            confirmed = self._confirmed = asyncio.Event()
            question = new_number()
            asked = {} if self._questions is None else self._questions
            self._questions = {n: at for n, at in asked.items() if clock() - at < self._patience}
            self._questions[question] = clock()
            responder.signal("confirm", question)
            await is_set_within(confirmed, CONFIRM_INTERVAL_SECONDS)
        # Drop the queue early: its deque takes 0.7 KiB, and the answer may take long.
        self._confirmed = self._questions = None

    async def _fail(self, responder: Responder, error: TgError) -> None:
        await send_failure(responder, self._route.spec.response.from_error(error.record))


async def _forward(records: AsyncGenerator[Response, None], responder: Responder) -> None:
    """Send the responses until the last.

    Raises:
        Internal: the service yielded no last record.
    """
    # Meanwhile the service may `put` responses directly, without waking this task.
    asked: AsyncGenerator[Response, Any] = records
    try:
        record = await anext(asked)
        while True:
            await responder.send(record)
            if record.last:
                return
            # Do not keep this record while waiting for the next.
            del record
            record = await asked.asend(responder.put)
    except StopAsyncIteration:
        raise Internal("the service ended without a last response") from None
    finally:
        # Not `aclosing`, which would take 150 bytes of each stream.
        await records.aclose()
