"""Envoy -> exchange: the gRPC service of external processing, and the health service beside it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from google.protobuf.message import DecodeError

from tg_gateway.envoy.decision import Picker
from tg_gateway.envoy.exchange import Exchange
from tg_gateway.envoy.grpc_call import GrpcCall, GrpcFault, GrpcStatus
from tg_gateway.envoy.grpc_health import HealthService
from tg_gateway.envoy.grpc_server import MAX_CONNECTIONS, GrpcServer, serve_grpc
from tg_gateway.envoy.request_phase import MAX_BODY_BYTES
from tg_schema.errors import BadRequest

LIVENESS = "liveness"
READINESS = "readiness"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
MAX_MESSAGE_BYTES = MAX_BODY_BYTES + 2 * 1024 * 1024
"""Envoy holds 33 MiB in the shipped configurations: a body between the two limits must arrive, so that its refusal is
ours."""
DRAIN_SECONDS = 30.0


class PickerService:
    """Carries messages between Envoy and an exchange for each HTTP request."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    async def process(self, call: GrpcCall) -> None:
        """One HTTP request. The call is cancelled when the client or Envoy leaves; the exchange is closed anyhow."""
        exchange = Exchange(self._picker)
        call.count_kept = exchange.count_held
        try:
            while (message := await call.read()) is not None:
                asked = exchange.take(_read(message))
                # A body may wait for long, and is in memory twice anyhow.
                message = b""
                for answer in await asked:
                    await call.send(answer.SerializeToString())
                if exchange.over:
                    return
        finally:
            exchange.close()


def _read(message: bytes) -> wire.ProcessingRequest:
    try:
        return wire.ProcessingRequest.FromString(message)
    except DecodeError:
        raise GrpcFault(GrpcStatus.INTERNAL, "the message cannot be read") from None


class PickerServer:
    """The listening server. `address` is where it listens, also if port 0 was asked for."""

    def __init__(self, address: str, health: HealthService) -> None:
        self.address = address
        self._health = health

    async def set_ready(self, ready: bool) -> None:
        """Say whether requests may come: there is an endpoint to pick."""
        for name in (READINESS, SERVICE, ""):
            self._health.set(name, ready)


@asynccontextmanager
async def serve_picker(
    picker: Picker, address: str, max_connections: int = MAX_CONNECTIONS
) -> AsyncIterator[PickerServer]:
    """Serve until the block is left; then requests that have begun get DRAIN_SECONDS.

    Several processes may listen on one address: the kernel shares the connections among them.

    Args:
        picker: decides.
        address: "host:port" to listen on.
        max_connections: of Envoys, that may be open at once.

    Raises:
        BadRequest: the address is not free, or none of this host.
    """
    health = HealthService(("", LIVENESS, READINESS, SERVICE))
    methods = {f"/{SERVICE}/Process": PickerService(picker).process, **health.methods}
    async with AsyncExitStack() as stack:
        try:
            server = GrpcServer(methods, MAX_MESSAGE_BYTES, max_connections=max_connections)
            listening = await stack.enter_async_context(serve_grpc(server, address, DRAIN_SECONDS))
        except OSError:
            raise BadRequest(f"cannot listen on {address}; take another address, or stop what listens there") from None
        # Before the calls are waited for, who watches the health is told.
        stack.callback(health.stop)
        health.set(LIVENESS, True)
        yield PickerServer(listening, health)
