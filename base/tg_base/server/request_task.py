"""Processor -> service -> responder: one request, from its confirmation to its single terminal record."""

import asyncio
from contextlib import aclosing, suppress
from typing import Any, cast

import structlog

from tg_base.protocol import RequestHeaders, Route
from tg_base.runtime import new_number, translate_defects
from tg_base.server.body_receiver import BodyReceiver
from tg_base.server.responder import Responder, send_failure
from tg_base.server.service import Service, Unreadable
from tg_base.server.slots import Slot
from tg_base.telemetry import find_stream_counter
from tg_schema import TgError
from tg_schema.errors import Cancelled, Internal, Timeout

log = structlog.get_logger()

DEFAULT_DEADLINE_SECONDS = 1800.0
"""Seconds for a plain peer's request without a deadline: a plain peer cannot cancel it."""
DEFECT_MESSAGE = "the service failed; its log says why, under the stream's id"
CONFIRM_INTERVAL_SECONDS = 1.0
"""Seconds between two requests for confirmation."""


class RequestTask:
    """Belongs to the task that creates it; any other task of the loop may call `stop`.

    Args:
        service: answers the request.
        route: the service and flow that were asked.
        call: the request's headers.
        slot: taken once the answer is known to be wanted, if it was not taken before.
        patience: seconds for which a confirmation is valid. After that the requestor may have asked another processor.
        bodies: fetches the body of a large request.
        processor: the id of the processor that runs it.

    Attributes:
        processor: as given.
        unreadable: why its message is no request; None = it is one, or not read yet.
    """

    def __init__(
        self,
        service: Service[Any, Any],
        route: Route[Any, Any],
        call: RequestHeaders,
        slot: Slot,
        *,
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
        self._wanted = call.fresh or call.reply is None
        self._confirmed: asyncio.Event | None = None
        self._patience = patience
        self._bodies = bodies
        self._questions: dict[int, float] = {}
        self.unreadable: str | None = None

    @property
    def inbox(self) -> str | None:
        """The requestor's inbox; None = a plain peer."""
        return self._call.reply

    def confirm(self, question: int) -> None:
        """The requestor has confirmed that question. A late confirmation proves nothing and is ignored."""
        asked_at = self._questions.get(question)
        if asked_at is not None and asyncio.get_running_loop().time() - asked_at < self._patience:
            self._wanted = True
            if self._confirmed is not None:
                self._confirmed.set()

    def stop(self, ending: TgError | None = None) -> None:
        """Close the service's stream now; its last record is `ending`."""
        self._ending = ending or self._ending
        self.task.cancel()

    async def run(self, request: Any | bytes, responder: Responder) -> None:
        """Forward the responses. Exactly one terminal record is sent, whatever happens.

        Args:
            request: the record, or the body of a large one; without one it is fetched.
            responder: sends the responses.
        """
        clock = asyncio.get_running_loop().time
        started = clock()
        outcome = "ok"
        try:
            with translate_defects(Internal, DEFECT_MESSAGE, "request.defect", log):
                await self._pass_on(request, responder)
        except asyncio.CancelledError:
            ending = self._ending or Cancelled("the request was cancelled")
            outcome = ending.type
            await self._fail(responder, ending)
        except TgError as error:
            outcome = error.type
            await self._fail(responder, error)
        finally:
            service, flow = self._route.spec.name, self._route.flow
            find_stream_counter(service, outcome).inc()
            seconds = round(clock() - started, 6)
            log.info("request.done", service=service, flow=flow, outcome=outcome, seconds=seconds)

    async def _pass_on(self, request: Any | bytes, responder: Responder) -> None:
        """Confirm, take a slot, fetch the body of a large request, and forward the responses.

        A request holds no slot while its confirmation is pending. If none is free afterwards, it is returned.
        """
        limit = asyncio.timeout(DEFAULT_DEADLINE_SECONDS if self._call.remaining is None else self._call.remaining)
        try:
            async with limit:
                await self._until_wanted(responder)
                if not await self._slot.take():
                    responder.hand_back()
                    return
                service = self._service
                responder.accept(lambda: service.loading)
                if isinstance(request, bytes):
                    request = await self._read(request, responder)
                # The deadline is for beginning. Our requestors cancel what they no longer want; plain peers cannot.
                if self._call.reply is not None:
                    limit.reschedule(None)
                async with aclosing(service.on_request(request)) as records:
                    async for record in records:
                        await responder.send(record)
                        if record.last:
                            return
        except TimeoutError:
            if limit.expired():
                raise Timeout("the request's deadline has passed") from None
            raise
        raise Internal("the service ended without a last response")

    async def _read(self, body: bytes, responder: Responder) -> Any:
        """The record of a large request.

        Raises:
            TgError: the body is no such record, or is refused.
        """
        if not body:
            body = await self._bodies.fetch(self._call.key, self._call.size, responder.fetch)
            # While it came this process may have been suspended, and the requestor may have asked another processor.
            self._wanted = False
            await self._until_wanted(responder)
        try:
            return await self._service.read(body)
        except Unreadable as error:
            self.unreadable = error.message
            raise

    async def _until_wanted(self, responder: Responder) -> None:
        """Ask the requestor to confirm a possible redelivery, so that no request is run (and billed) twice."""
        clock = asyncio.get_running_loop().time
        # A new number for each question: the reply to an earlier one may be older than the requestor's next attempt.
        while not self._wanted:
            confirmed = self._confirmed = asyncio.Event()
            question = new_number()
            self._questions = {n: at for n, at in self._questions.items() if clock() - at < self._patience}
            self._questions[question] = clock()
            responder.ask(question)
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFIRM_INTERVAL_SECONDS):
                    await confirmed.wait()
        # Dropped early: it has a deque of 0.7 KiB, and the answer may take long.
        self._confirmed = None

    async def _fail(self, responder: Responder, error: TgError) -> None:
        await send_failure(responder, self._route.spec.response.from_error(error.record))
