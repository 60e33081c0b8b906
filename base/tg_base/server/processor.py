"""Work queue -> service -> responder: runs one service for as long as it is entered.

Takes a request when a slot is free, acknowledges it, runs it as a task of its own, and makes sure that every stream
has exactly one end.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from time import time
from types import TracebackType
from typing import Any, Self

import structlog

from tg_base.bus import Bus, Delivery
from tg_base.protocol import (
    MAX_REQUEST_BYTES,
    HeartbeatTiming,
    KeptStream,
    LinkStream,
    ModelHealth,
    Presence,
    RequestHeaders,
    Route,
    StreamKey,
    Subscriptions,
    publish_dead_letter,
)
from tg_base.runtime import MAX_QUICK_BYTES, descriptors, is_costly, report, running, start_task
from tg_base.server.host import Host
from tg_base.server.request_task import RequestTask
from tg_base.server.responder import PlainResponder, Responder, send_failure
from tg_base.server.service import Service
from tg_base.server.slots import Slot, Slots
from tg_base.server.usage_account import ACCOUNT, UsageAccount
from tg_base.telemetry import ACTIVE_STREAMS, QUEUE_WAIT_SECONDS, find_stream_counter, trace
from tg_schema import TgError, decode
from tg_schema.errors import BadRequest, Unavailable
from tg_schema.topics import Topics

log = structlog.get_logger()

SLOTS_PER_PREFETCH = 16
"""Prefetch one request per 16 slots: enough for a burst, too few to starve other processors. Below that capacity there
is no prefetch."""
DEAD_LETTER_PAUSE_SECONDS = 1.0
"""Pause before a message that could not be published as a dead letter is returned to the queue."""
RECENT_REQUESTS = 16
"""Weight of the moving average of request durations: a new one counts for 1 / RECENT_REQUESTS."""
LINGER_SECONDS = 3.0
"""Seconds for which a queue that an edit leaves without a reader is still read: requests may wait there, and gateways
may read the file a little later."""
MAX_UNCONFIRMED_REQUESTS = 256
"""Requests that may await confirmation without a slot. Beyond this number, one request of each requestor may wait for
it in a slot."""
ENDED_SECONDS = 1.0
"""For how long a request that has ended is not begun again under the same attempt."""
ACCEPTED_EVERY_HEARTBEATS = 5
"""Heartbeats without a record after which "accepted" is sent again: a whole answer gives no other sign of progress."""
MAX_TOLD_AT_ONCE = 64
"""How many plain peers are notified at a time that they have reused an id; further ones are not notified."""
UNKNOWN_WAIT_SECONDS = 1e6
"""Announced as the queue time of a request if it is not known: longer than any real one."""
_REUSED = BadRequest("a request with this id has just ended; give each request an id of its own").record


class Processor:
    """Enter it to serve; leave it to drain: requests still running after `grace` seconds fail or continue elsewhere.

    Args:
        bus: carries everything.
        topics: the names of our own topics.
        service: answers the requests. It is closed on leaving.
        routes: the queues to read, all of the service's kind.
        models: the models that it announces.
        timing: the heartbeat interval, and when a silent requestor counts as dead.
        grace: seconds that running requests get on leaving, from when the whole process leaves (`Host.leave`).
        host: the resources that the processors of the process share, entered before and left after them; its topics and
            timing apply. None = the processor is alone, and enters a host of its own.

    Attributes:
        host: the given host, or its own.
    """

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        service: Service[Any, Any],
        routes: tuple[Route[Any, Any], ...],
        *,
        models: tuple[str, ...] = (),
        timing: HeartbeatTiming | None = None,
        grace: float = 10.0,
        host: Host | None = None,
    ) -> None:
        self.host = host or Host(bus, topics, timing=timing)
        self._alone = host is None
        self._id = self.host.name_processor()
        self._bus = bus
        self._service = service
        self._routes = routes
        self._readers: dict[Route[Any, Any], AsyncExitStack] = {}
        self._models = models
        self._timing = self.host.timing
        self._grace = grace
        self._slots = Slots(service.capacity)
        self._running: dict[StreamKey, RequestTask] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._leaving = False
        self._reading = asyncio.Lock()
        self._seconds = self._waited = 0.0
        self._taken = self._direct = 0
        self._health = ModelHealth()
        self._active = ACTIVE_STREAMS.labels(service.spec.name)
        model = models[0] if models else ""
        self._queue_wait = {
            route.flow: QUEUE_WAIT_SECONDS.labels(service.spec.name, model, route.flow) for route in routes
        }

    @property
    def name(self) -> str:
        """The id of its process, under which it answers."""
        return self.host.name

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it reads."""
        return tuple(route.request for route in self._routes)

    async def __aenter__(self) -> Self:
        self._time = asyncio.get_running_loop().time
        announce = self.host.changed.set
        async with AsyncExitStack() as stack:
            if self._alone:
                await stack.enter_async_context(self.host)
            self._subscriptions = await stack.enter_async_context(
                Subscriptions(self._bus, give_up=self._timing.give_up, on_change=announce)
            )
            pumps = await stack.enter_async_context(AsyncExitStack())
            queues: list[tuple[Route[Any, Any], AsyncIterator[Delivery]]] = []
            for route in self._routes:
                reader = self._readers[route] = await pumps.enter_async_context(AsyncExitStack())
                group = f"tg-{self._service.spec.name}"
                prefetch = self._service.capacity // SLOTS_PER_PREFETCH
                queue = self._subscriptions.open(route.request, group, prefetch=prefetch)
                queues.append((route, await reader.enter_async_context(queue)))
            self._service.announce = announce
            # Announce only now: a requestor that hears of a queue asks at once, and without a subscription nothing is
            # kept.
            self.host.add(self._id, self._describe, self._take_direct)
            stack.callback(self.host.remove, self._id)
            await self.host.announce()
            # An unannounced processor would take requests that nobody knows of. If the bus is down, the announcement
            # only comes later.
            answers = self.host.announce_error is None or await self._subscriptions.answers()
            # Look again: the bus may have taken an announcement during the ping.
            if answers and self.host.announce_error is not None:
                raise self.host.announce_error
            for route, requests in queues:
                await self._readers[route].enter_async_context(running(self._pump(route, requests)))
            self._pumps, self._rest = pumps.pop_all(), stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._leaving = True
        await self._pumps.aclose()
        # Announced before draining, so that requestors stop counting on us.
        await self.host.announce()
        await self._drain()
        try:
            await self._rest.__aexit__(kind, error, tb)
        finally:
            for task in self._telling:
                task.cancel()
            await self._service.aclose()

    async def hand_over(self, left: Collection[str] = ()) -> bool:
        """Read only the queues that are `left` to nobody else; return whether there are any."""
        kept = tuple(route for route in self._routes if route.request in left)
        for route in set(self._routes) - set(kept):
            await self._readers[route].aclose()
        # A processor that leaves announces its queues until it has left.
        self._routes = kept or self._routes
        return bool(kept)

    async def retire(self, left: Collection[str] = ()) -> None:
        """Take no more requests, and return when the last one has ended, however long that takes.

        Args:
            left: queues that nobody else reads any more; they are read for `LINGER_SECONDS` more.
        """
        if await self.hand_over(left):
            await self.host.announce()
            await asyncio.sleep(LINGER_SECONDS)
        self._leaving = True
        await self._pumps.aclose()
        await self.host.announce()
        while self._running:
            await asyncio.wait([work.task for work in self._running.values()])

    async def _drain(self) -> None:
        if self._running:
            left = self.host.rest_of(self._grace)
            _, late = await asyncio.wait([work.task for work in self._running.values()], timeout=left)
            for work in self._running.values():
                work.leave(Unavailable("the processor shuts down; ask again"))
            if late:
                await asyncio.wait(late)

    async def _pump(self, route: Route[Any, Any], requests: AsyncIterator[Delivery]) -> None:
        # Wait for a free slot before asking the bus, so that an idle processor gets the requests that we cannot begin.
        # Take the slot only with a request in hand: one that is held for an empty queue would starve this processor's
        # others.
        while True:
            await self._slots.wait(route)
            if descriptors.short:
                await descriptors.until_enough()
            delivery = await anext(requests)
            call: RequestHeaders | BadRequest
            try:
                call = RequestHeaders.of(delivery, self.host.publishers)
                slot = await self._admit(route, delivery, call)
            except BadRequest as error:
                call, slot = error, Slot(self._slots, route)
            if slot is not None:
                task = asyncio.create_task(self._take(route, delivery, call, slot, self._time()), name="request")
                task.add_done_callback(report)

    async def _admit(self, route: Route[Any, Any], delivery: Delivery, call: RequestHeaders) -> Slot | None:
        """The slot of a request that is to be taken; None = it was dropped, or returned."""
        if self._drop_unwanted(route, delivery, call):
            self._tell_reused(route, call)
            return None
        # Its requestor must confirm it before it is begun.
        doubtful = call.reply is not None and not call.fresh
        if doubtful and self._is_excess(call):
            # Let the requestor, if it lives, publish it again. A nack would return it ahead of all others.
            self._count(call)
            delivery.ack()
            self.host.hand_back(call)
            return None
        slot = Slot(self._slots, route)
        if not descriptors.short and ((doubtful and self._postpone(call, slot)) or await slot.take()):
            return slot
        # Another queue took the last slot, or no descriptor is free: the bus redelivers the request, here or elsewhere.
        delivery.nack()
        return None

    def _take_direct(self, delivery: Delivery, call: RequestHeaders) -> bool:
        """Take a request that was sent to this process and not to its queue; False = it cannot begin here now.

        It holds no slot before its requestor has confirmed it, like a possible redelivery.
        """
        route = next((route for route in self._routes if route.request == call.queue), None)
        if route is None or self._leaving or not self._slots.has_room or descriptors.short:
            return False
        if not self._drop_unwanted(route, delivery, call):
            slot = Slot(self._slots, route)
            if not self._postpone(call, slot):
                return False
            task = asyncio.create_task(self._take(route, delivery, call, slot, self._time()), name="request")
            task.add_done_callback(report)
        return True

    def _postpone(self, call: RequestHeaders, slot: Slot) -> bool:
        """Whether a doubtful request takes no slot yet. A slot is reserved if its confirmation is expected soon."""
        if self._is_full:
            return False
        # A dead requestor's backlog, which nobody will confirm, must not hold up those that are alive.
        if call.reply is not None and self.host.publishers.silence(call.reply) < self._timing.overdue_after:
            slot.reserve()
        return True

    @property
    def _is_full(self) -> bool:
        """Whether `MAX_UNCONFIRMED_REQUESTS` await confirmation without a slot; any more take slots."""
        return len(self._running) - self._slots.taken >= MAX_UNCONFIRMED_REQUESTS

    def _is_excess(self, call: RequestHeaders) -> bool:
        """Whether a doubtful request would await confirmation in a slot, as another of its requestor does already."""
        return self._is_full and any(work.unconfirmed and work.inbox == call.reply for work in self._running.values())

    async def _take(
        self, route: Route[Any, Any], delivery: Delivery, call: RequestHeaders | BadRequest, slot: Slot, came: float
    ) -> None:
        """Run one message of the queue, drop it because nobody waits for it, or reject it."""
        with slot:
            try:
                if isinstance(call, BadRequest):
                    raise call
                if call.span is not None:
                    trace.enter(call.span)
                # Check the size first: most requests are small.
                if not call.size and len(delivery.body) <= MAX_QUICK_BYTES:
                    request = decode(route.spec.request, delivery.body)
                else:
                    request = await self._read_large(route, delivery.body, call)
                    if self._leaving:
                        # Unacknowledged, the message goes to another processor, so running it here would be a second
                        # run.
                        if call.queue is not None:
                            self.host.hand_back(call)
                        return
            except BadRequest as error:
                await self._refuse(route, delivery, None if isinstance(call, BadRequest) else call, error)
                return
            # Check again: while this one was read, another copy may have begun, or a cancel may have come.
            if self._drop_unwanted(route, delivery, call):
                self._tell_reused(route, call)
                return
            # An answer may take minutes, and a prompt may be long: only the work has the request from here on.
            work = self._work_on(route, delivery, call, request, slot=slot, came=came)
            del delivery, request
            await work

    async def _read_large(self, route: Route[Any, Any], body: bytes, call: RequestHeaders) -> Any:
        """The request, or its body if the service has to read it in another process."""
        if call.size:
            return body
        # One per turn of the event loop: the requests for a long list of texts come together.
        async with self._reading:
            await asyncio.sleep(0)
            return body if is_costly(body) else decode(route.spec.request, body)

    async def _work_on(
        self,
        route: Route[Any, Any],
        delivery: Delivery,
        call: RequestHeaders,
        request: object,
        *,
        slot: Slot,
        came: float,
    ) -> None:
        self._count(call)
        # Acknowledged at the start, not at the end: redelivered after a crash, it would run and be billed again. The
        # requestor notices our death by the missing heartbeats, and knows whether a retry is safe.
        delivery.ack()
        queued_at = int((time() - (call.least_delay if call.delay is None else call.delay)) * 1000)
        size = call.size or len(delivery.body)
        account = UsageAccount(call, route.flow, queued_at, size, self.host.usage.put)
        ACCOUNT.set(account)
        del delivery
        begun, patience = self._time(), self._timing.doubt_after
        responder = self._open_responder(route, call)
        responder.open()
        self._queue_wait[route.flow].observe(call.delay or 0.0)
        work = RequestTask(
            self._service, route, call, slot, came=came, patience=patience, bodies=self.host.bodies, processor=self._id
        )
        self._running[call.key] = self.host.running[call.key] = work
        self._active.inc()
        try:
            try:
                running = work.run(request, responder)
                del request
                await running
            finally:
                responder.close()
            if work.unreadable is not None and not call.size:
                # This request was too large to be read before it was acknowledged.
                await self._publish_dead_letter(route, *work.unreadable)
        finally:
            if account.failed:
                account.close()
            self._took(self._time() - begun)
            if work.answered or work.failure is not None:
                self._observe(work.failure, begun)
            self._active.dec()
            del self._running[call.key], self.host.running[call.key]
            if call.kept:
                self.host.forget_kept(call.key.stream)
            # A second copy of the same publish may be too young to need confirmation: it must not be answered too.
            self.host.ended.add(call.key, ENDED_SECONDS)

    def _drop_unwanted(self, route: Route[Any, Any], delivery: Delivery, call: RequestHeaders) -> bool:
        """Drop a request, and return True, if nobody waits for the answer any more or it is already running."""
        key, host = call.key, self.host
        expired = call.remaining is not None and call.remaining <= 0
        if not (expired or key in host.running or key in host.ended or key in host.cancelled):
            return False
        self._count(call)
        find_stream_counter(route.spec.name, "dropped").inc()
        delivery.ack()
        return True

    def _tell_reused(self, route: Route[Any, Any], call: RequestHeaders) -> None:
        """Tell a plain peer that its request was dropped because its id was used just before.

        While the first request runs, the peer is told nothing: the error would end that one. If a broker has stored one
        request twice, the peer has its answer already, and ignores the error.
        """
        known = call.key in self.host.ended and call.key not in self.host.running
        if call.reply is None and known and len(self._telling) < MAX_TOLD_AT_ONCE:
            responder = PlainResponder(self._bus, route.response, call.key.stream)
            # In a task of its own, so that a full topic does not delay the work queue.
            work = send_failure(responder, route.spec.response.from_error(_REUSED))
            start_task(self._telling, work, name="reused")

    def _count(self, call: RequestHeaders) -> None:
        if call.queue is not None:
            # A direct request has no queue time, and would make the queue look short.
            self._direct += 1
            return
        self._taken += 1
        self._waited = max(self._waited, UNKNOWN_WAIT_SECONDS if call.delay is None else call.delay)

    def _observe(self, failure: TgError | None, begun: float) -> None:
        """Announce at once that the model is better not asked for a while, or is well again."""
        if self._service.cools and self._health.observe(self._id, failure, begun):
            self.host.changed.set()

    def _took(self, seconds: float) -> None:
        self._seconds += (seconds - self._seconds) / RECENT_REQUESTS if self._seconds else seconds

    async def _refuse(
        self, route: Route[Any, Any], delivery: Delivery, call: RequestHeaders | None, error: BadRequest
    ) -> None:
        log.warning("request.refused", topic=route.request, reason=error.message)
        if await self._publish_dead_letter(route, delivery.body, error.message):
            delivery.ack()
        else:
            await asyncio.sleep(DEAD_LETTER_PAUSE_SECONDS)
            delivery.nack()
        call = call or RequestHeaders.of_unreadable(delivery)
        if call is not None:
            responder = self._open_responder(route, call)
            try:
                await send_failure(responder, route.spec.response.from_error(error.record))
            finally:
                responder.close()

    async def _publish_dead_letter(self, route: Route[Any, Any], body: bytes, reason: str) -> bool:
        return await publish_dead_letter(self._bus, self.host.topics, route.request, body, reason)

    def _open_responder(self, route: Route[Any, Any], call: RequestHeaders) -> Responder:
        if call.reply is None:
            return PlainResponder(self._bus, route.response, call.key.stream)
        link = self.host.links.to(call.reply, call.delay, call.least_delay)
        repeat_after = ACCEPTED_EVERY_HEARTBEATS * self._timing.interval
        if not call.kept:
            return LinkStream(link, call.key, repeat_after)
        kept = self.host.kept[call.key.stream] = KeptStream(link, call.key, repeat_after)
        return kept

    def _describe(self) -> Presence:
        """The processor's services, and its work since the last call."""
        waited, self._waited = self._waited, 0.0
        is_deaf = bool(self._subscriptions.failed) or self.host.has_failed_subscription
        return Presence(
            processor=self._id,
            queues=self.queues,
            capacity=self._service.capacity,
            in_flight=self._slots.taken,
            models=self._models,
            leaving=self._leaving or is_deaf or (descriptors.short and descriptors.look()),
            features=tuple(sorted(self._service.features)),
            seconds=round(self._seconds, 6),
            taken=self._taken,
            direct=self._direct,
            waited=round(waited, 3),
            request_bytes=MAX_REQUEST_BYTES,
            loading=self._service.loading,
            adapters=dict(self._service.adapters),
            adapters_only=self._service.adapters_only,
            # Round down: a requestor that got the error itself knows the time more exactly.
            cooling=int(self._health.wait(self._id) * 10) / 10,
            failing=self._health.explain(self._id),
            provider=self._service.provider,
            pools=dict(self._service.pools),
        )
