"""Envoy -> exchange: the gRPC service of external processing, and the health services beside it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as wire
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from typing_extensions import override

from tg_gateway.envoy.decision import Picker
from tg_gateway.envoy.exchange import Exchange
from tg_gateway.envoy.request_phase import MAX_BODY_BYTES
from tg_schema.errors import BadRequest

LIVENESS = "liveness"
READINESS = "readiness"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
MAX_MESSAGE_BYTES = MAX_BODY_BYTES + 2 * 1024 * 1024
"""gRPC's default of 4 MiB makes a larger buffered body a 500. Envoy holds 33 MiB in the shipped configurations: a body
between the two limits must arrive, so that its refusal is ours."""
MAX_STREAMS = 10_000
"""Exchanges at a time on one connection; what is more waits in Envoy."""
SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.so_reuseport", 1),
)
DRAIN_SECONDS = 30.0


class PickerService(wire.ExternalProcessorServicer):  # type: ignore[misc]
    """Carries messages between Envoy and an exchange for each HTTP request."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    # The name is that of the service's method.
    @override
    async def Process(self, request_iterator: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """One HTTP request. The call is cancelled when the client or Envoy leaves; the exchange is closed anyhow."""
        exchange = Exchange(self._picker)
        try:
            while (message := await context.read()) is not grpc.aio.EOF:
                for answer in await exchange.take(message):
                    await context.write(answer)
                if exchange.over:
                    return
        finally:
            exchange.close()


class HealthService(health_aio.HealthServicer):
    """gRPC's own does not implement `List`: each such call left a traceback in the log."""

    # The name is that of the service's method, which the library's types lack.
    @override
    async def List(  # type: ignore[misc]
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> Any:
        """The status of each name."""
        asked = (health_pb2.HealthCheckRequest(service=name) for name in ("", LIVENESS, READINESS, SERVICE))
        statuses = {each.service: await self.Check(each, context) for each in asked}
        return health_pb2.HealthListResponse(statuses=statuses)  # type: ignore[attr-defined]


class PickerServer:
    """The listening server. `address` is where it listens, also if port 0 was asked for."""

    def __init__(self, address: str, health: health_aio.HealthServicer) -> None:
        self.address = address
        self._health = health

    async def set_ready(self, ready: bool) -> None:
        """Say whether requests may come: there is an endpoint to pick."""
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in (READINESS, SERVICE, ""):
            await self._health.set(name, status)


@asynccontextmanager
async def serve_picker(picker: Picker, address: str) -> AsyncIterator[PickerServer]:
    """Serve until the block is left; then requests that have begun get DRAIN_SECONDS.

    Several processes may listen on one address: the kernel shares the connections among them.

    Raises:
        BadRequest: the address is not free, or none of this host.
    """
    server = grpc.aio.server(options=SERVER_OPTIONS)
    health = HealthService()
    wire.add_ExternalProcessorServicer_to_server(PickerService(picker), server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise BadRequest(f"cannot listen on {address}; take another address, or stop what listens there") from None
    running = PickerServer(f"{address.rpartition(':')[0]}:{port}", health)
    await health.set(LIVENESS, health_pb2.HealthCheckResponse.SERVING)
    await running.set_ready(False)
    await server.start()
    try:
        yield running
    finally:
        await health.enter_graceful_shutdown()
        await server.stop(DRAIN_SECONDS)
