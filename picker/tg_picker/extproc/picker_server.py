"""Envoy -> exchange: the gRPC service of external processing, and the health service next to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from typing_extensions import override

from tg_picker.extproc import wire
from tg_picker.extproc.decision import Picker
from tg_picker.extproc.exchange import MAX_BODY_BYTES, Exchange
from tg_schema.errors import BadRequest

LIVENESS = "liveness"
READINESS = "readiness"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
MAX_MESSAGE_BYTES = MAX_BODY_BYTES + 2 * 1024 * 1024
"""Envoy buffers 33 MiB in the configurations that we ship. A body between the two limits must arrive, so that the
client gets our refusal."""
MAX_HELD_BYTES = 512 * 1024 * 1024
"""Most bytes of bodies that all calls hold: twice what may wait for a server, and sixteen of the largest bodies."""
HANDSHAKE_SECONDS = 5
"""A connection that has not begun to speak HTTP/2 after this time is closed, so that silent connections do not use up
all file descriptors."""
IDLE_SECONDS = 300
"""A connection without a call is closed after this time. Envoy opens another one when it needs it."""
KEEPALIVE_SECONDS = 60
"""A peer that is silent for this time is pinged. If it stays silent for the same time again, it counts as lost."""
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Further requests wait in Envoy.
    ("grpc.max_concurrent_streams", 10_000),
    ("grpc.so_reuseport", 1),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
    ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_SECONDS * 1000),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_SECONDS * 1000),
    # Envoy's own configuration decides how often it pings.
    ("grpc.http2.max_ping_strikes", 0),
)
DRAIN_SECONDS = 30.0
_log = structlog.stdlib.get_logger("tg.envoy")


class PickerService:
    """Carries messages between Envoy and one exchange for each HTTP request.

    Args:
        picker: picks the servers.
        max_held: bytes that all calls together may hold. If they hold more, the call that holds the most is ended.
    """

    def __init__(self, picker: Picker, max_held: int) -> None:
        self._picker = picker
        self._max_held = max_held
        self._held: dict[asyncio.Timeout, int] = {}
        self._held_by_all = 0

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a gRPC server. The service has only this method."""
        process: Any = grpc.stream_stream_rpc_method_handler(
            self.process, wire.ProcessingRequest.FromString, wire.ProcessingResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Process": process})

    async def process(self, _: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One HTTP request. The call is cancelled when the client or Envoy leaves. The exchange is always closed."""
        exchange = Exchange(self._picker)
        try:
            async with asyncio.timeout(None) as ending:
                try:
                    await self._carry(exchange, context, ending)
                finally:
                    self._count(ending, 0)
                    exchange.close()
        except TimeoutError:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the calls hold too much; send less at once")
        except DecodeError:
            await context.abort(grpc.StatusCode.INTERNAL, "the message cannot be read")

    async def _carry(
        self, exchange: Exchange, context: grpc.aio.ServicerContext[Any, Any], ending: asyncio.Timeout
    ) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            self._count(ending, exchange.count_held() + message.ByteSize())
            for answer in await exchange.take(message):
                await context.write(answer)
            self._count(ending, exchange.count_held())
            if exchange.over:
                return

    def _count(self, call: asyncio.Timeout, size: int) -> None:
        """Note the bytes that a call holds. Above the limit, the largest call ends, so that small ones go on."""
        self._held_by_all += size - self._held.pop(call, 0)
        self._held[call] = size
        if not size:
            del self._held[call]
        if self._held_by_all > self._max_held:
            largest = max(self._held, key=self._held.__getitem__)
            largest.reschedule(asyncio.get_running_loop().time())
            self._held_by_all -= self._held.pop(largest)
            _log.warning("picker.call_ended", reason=f"all calls together held more than {self._max_held} bytes")


class PickerServer(health_aio.HealthServicer):
    """The listening server, with its health. `List` is our own, because gRPC's logs a traceback for each call.

    Attributes:
        address: the address on which it listens, with the real port if port 0 was requested.
    """

    address = ""

    # The method's name is part of the service, but missing in the library's types.
    @override
    async def List(  # type: ignore[misc]
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        """The health status of each name."""
        asked = (health_pb2.HealthCheckRequest(service=name) for name in ("", LIVENESS, READINESS, SERVICE))
        statuses = {each.service: await self.Check(each, context) for each in asked}
        return health_pb2.HealthListResponse(statuses=statuses)  # type: ignore[attr-defined]

    async def set_ready(self, ready: bool) -> None:
        """Report whether requests may come, which is the case if there is an endpoint to pick."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in (READINESS, SERVICE, ""):
            await self.set(name, status)


@asynccontextmanager
async def serve_picker(
    picker: Picker, address: str, max_held: int = MAX_HELD_BYTES, options: tuple[tuple[str, int], ...] = SERVER_OPTIONS
) -> AsyncIterator[PickerServer]:
    """Serve until the block is left. Requests that have begun then get DRAIN_SECONDS.

    Several processes may listen on one address: the kernel distributes the connections among them.

    Args:
        picker: picks the servers.
        address: "host:port" to listen on.
        max_held: see `PickerService`.
        options: gRPC's options.

    Raises:
        BadRequest: the address is in use, or does not belong to this host.
    """
    server, running = grpc.aio.server(options=options), PickerServer()
    server.add_generic_rpc_handlers((PickerService(picker, max_held).handler,))
    health_pb2_grpc.add_HealthServicer_to_server(running, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise BadRequest(f"cannot listen on {address}; take another address, or stop what listens there") from None
    running.address = f"{address.rpartition(':')[0]}:{port}"
    await running.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
    await running.set_ready(False)
    await server.start()
    try:
        yield running
    finally:
        # Notify watchers of the health before waiting for the calls to end.
        await running.enter_graceful_shutdown()
        await server.stop(DRAIN_SECONDS)
