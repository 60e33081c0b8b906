"""One accepted request: from its first record to its one end."""

import asyncio
import time
from contextlib import aclosing, suppress
from typing import Any, cast

import structlog

from tg_base.call import Call
from tg_base.metrics import STREAMS
from tg_base.reply import Reply
from tg_base.route import Route
from tg_base.service import Service
from tg_schema.errors import Cancelled, Internal, TgError, Timeout

log = structlog.get_logger()

LONGEST = 1800.0
"""Seconds for a request whose requestor names no deadline."""
ASK_AGAIN = 1.0
"""Seconds between two questions whether a request is still wanted."""


class Work:
    """Belongs to the task that makes it; `stop` may come from anywhere else on the loop."""

    def __init__(self, service: Service[Any, Any], route: Route[Any, Any], call: Call) -> None:
        self.task = cast("asyncio.Task[None]", asyncio.current_task())
        self._service = service
        self._route = route
        self._call = call
        self._ending: TgError = Cancelled("the request was cancelled")
        self._wanted = asyncio.Event()
        if call.fresh or call.reply is None:
            self._wanted.set()

    def wanted(self) -> None:
        """The requestor still waits for this."""
        self._wanted.set()

    def stop(self, ending: TgError | None = None) -> None:
        """Close the service's stream now; whoever still reads is told why."""
        self._ending = ending or self._ending
        self.task.cancel()

    async def run(self, request: Any, reply: Reply) -> None:
        """Pass on what the service answers. Whatever happens, the last record is the only one that ends the stream."""
        started = time.monotonic()
        outcome = "ok"
        try:
            await self._pass_on(request, reply)
        except asyncio.CancelledError:
            outcome = self._ending.type
            await self._fail(reply, self._ending)
        except TgError as error:
            outcome = error.type
            await self._fail(reply, error)
        except Exception:
            outcome = Internal.type
            log.exception("request.defect")
            await self._fail(reply, Internal("the service failed; its log says why, under the stream's id"))
        finally:
            service, flow = self._route.spec.name, self._route.flow
            STREAMS.labels(service, outcome).inc()
            seconds = round(time.monotonic() - started, 6)
            log.info("request.done", service=service, flow=flow, outcome=outcome, seconds=seconds)

    async def _pass_on(self, request: Any, reply: Reply) -> None:
        limit = asyncio.timeout(LONGEST if self._call.remaining is None else self._call.remaining)
        try:
            async with limit:
                await self._until_wanted(reply)
                async with aclosing(self._service.on_request(request)) as records:
                    async for record in records:
                        await reply.send(record)
                        if record.last:
                            return
        except TimeoutError:
            if limit.expired():
                raise Timeout("the request's deadline has passed") from None
            raise
        raise Internal("the service ended without a last response")

    async def _until_wanted(self, reply: Reply) -> None:
        """What may have been delivered before is not begun, and paid, a second time unless the requestor says so."""
        while not self._wanted.is_set():
            reply.ask()
            with suppress(TimeoutError):
                async with asyncio.timeout(ASK_AGAIN):
                    await self._wanted.wait()

    async def _fail(self, reply: Reply, error: TgError) -> None:
        await reply.send(self._route.spec.response.failed(error.record))
