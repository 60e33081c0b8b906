"""The standard health service of gRPC (grpc.health.v1): what serves, by name, for probes and for Envoy."""

import asyncio
from collections.abc import Mapping, Sequence

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from tg_gateway.envoy.grpc_call import GrpcCall, GrpcFault, GrpcStatus
from tg_gateway.envoy.grpc_server import Method

_Response = health_pb2.HealthCheckResponse
HEALTH = "grpc.health.v1.Health"


class HealthService:
    """The status of each of the names.

    Args:
        names: none of them serves at first.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._serves = dict.fromkeys(names, False)
        self._changed = asyncio.Event()
        self._is_stopped = False

    @property
    def methods(self) -> Mapping[str, Method]:
        """For a `GrpcServer`."""
        return {f"/{HEALTH}/Check": self.check, f"/{HEALTH}/Watch": self.watch, f"/{HEALTH}/List": self.list}

    def set(self, name: str, serves: bool) -> None:
        """Say whether `name` serves."""
        self._serves[name] = serves and not self._is_stopped
        self._tell()

    def stop(self) -> None:
        """Nothing serves any more. Who watches is told so, and the calls end."""
        self._is_stopped = True
        self._serves = dict.fromkeys(self._serves, False)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def check(self, call: GrpcCall) -> None:
        """The status of one name."""
        if (name := await _read_name(call)) not in self._serves:
            raise GrpcFault(GrpcStatus.NOT_FOUND, "there is no service of this name")
        await call.send(self._status(name))

    async def watch(self, call: GrpcCall) -> None:
        """The status of one name, and each change."""
        name, told = await _read_name(call), b""
        while True:
            changed, status = self._changed, self._status(name)
            if status != told:
                told = status
                await call.send(status)
            if self._is_stopped:
                return
            await changed.wait()

    async def list(self, call: GrpcCall) -> None:
        """The status of each name."""
        listed = health_pb2.HealthListResponse()  # type: ignore[attr-defined]
        for name in self._serves:
            listed.statuses[name].ParseFromString(self._status(name))
        await call.send(listed.SerializeToString())

    def _status(self, name: str) -> bytes:
        if (serves := self._serves.get(name)) is None:
            return _Response(status=_Response.SERVICE_UNKNOWN).SerializeToString()
        return _Response(status=_Response.SERVING if serves else _Response.NOT_SERVING).SerializeToString()


async def _read_name(call: GrpcCall) -> str:
    message = await call.read()
    if message is None:
        raise GrpcFault(GrpcStatus.INTERNAL, "the call has no message")
    try:
        return health_pb2.HealthCheckRequest.FromString(message).service
    except DecodeError:
        raise GrpcFault(GrpcStatus.INTERNAL, "the message cannot be read") from None
