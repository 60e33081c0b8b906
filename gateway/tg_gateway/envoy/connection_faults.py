"""Connections that end by a fault -> log: a line says what the operator can do, and a flood of them is one line."""

from collections.abc import Callable
from time import monotonic

import structlog

QUIET_SECONDS = 10.0
"""After a warning, further faults are only counted for this long, and logged at `debug`."""
_TLS_HANDSHAKE = 0x16
_log = structlog.stdlib.get_logger("tg.envoy")


def explain_beginning(data: bytes) -> str:
    """Which protocol a peer speaks in place of HTTP/2, judged by its first byte, and what to do about it."""
    if data[0] == _TLS_HANDSHAKE:
        return (
            "the peer speaks TLS, and this port serves HTTP/2 without TLS; "
            "leave transport_socket out of the picker's cluster in Envoy"
        )
    if chr(data[0]).isupper():
        return (
            "the peer speaks HTTP/1, and this port serves HTTP/2; set http2_protocol_options in the picker's cluster "
            "in Envoy, and look for metrics and pages on the port of `http`"
        )
    return "this is no HTTP/2; let nothing but Envoy and gRPC clients connect to this port"


class FaultLog:
    """Logs the connections of one server that end by a fault. A line contains nothing that the peer has sent.

    Args:
        clock: in seconds; it may only rise.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._quiet_until = float("-inf")
        self._others = 0

    def tell(self, reason: str, peer: str) -> None:
        """A connection ends by a fault.

        Args:
            reason: a sentence of ours.
            peer: its address.
        """
        now = self._clock()
        if now < self._quiet_until:
            self._others += 1
            _log.debug("picker.connection_failed", reason=reason, peer=peer)
            return
        others, self._others = self._others, 0
        self._quiet_until = now + QUIET_SECONDS
        _log.warning("picker.connection_failed", reason=reason, peer=peer, others=others)
