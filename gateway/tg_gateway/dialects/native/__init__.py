"""Our own protocol, in TrustGraph's shapes: REST, server-sent events and the WebSocket."""

from tg_gateway.dialects.native.dialect import NATIVE
from tg_gateway.dialects.native.mounts import NATIVE_MOUNTS

__all__ = ["NATIVE", "NATIVE_MOUNTS"]
