"""Our own protocol, in TrustGraph's shapes: REST, server-sent events and the WebSocket."""

from tg_gateway.dialects.native.dialect import MOUNTS, NATIVE

__all__ = ["MOUNTS", "NATIVE"]
