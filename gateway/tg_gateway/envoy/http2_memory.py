"""What the streams of one connection hold together -> those that hold the most end, when it is too much.

Each stream has a bound of its own, and 10,000 of them have none together. A window of the connection that is given back
only as bodies are consumed would be one, but many large bodies that have begun would then wait for each other for ever.
"""

from collections.abc import Iterable

import structlog

from tg_gateway.envoy.http2_stream import Http2Stream

MAX_HELD_BYTES = 512 * 1024 * 1024
"""Of one connection: what has come of messages, what its calls keep of them, and answers that wait for a window.
Twice what may wait for a server, and sixteen of the largest bodies."""
_log = structlog.stdlib.get_logger("tg.envoy")


def end_largest(streams: Iterable[Http2Stream], limit: int) -> None:
    """If these streams hold more than the limit, end the largest ones, until they hold an eighth less.

    So it is not done for each further byte. Small calls, such as probes of health, go on.
    """
    held = {stream: stream.held for stream in streams}
    total = sum(held.values())
    if total <= limit:
        return
    ended = 0
    for stream in sorted(held, key=held.__getitem__, reverse=True):
        if total <= limit - limit // 8:
            break
        stream.receiver.overflow()
        total -= held[stream]
        ended += 1
    _log.warning("picker.calls_ended", reason=f"a connection's calls held more than {limit} bytes", calls=ended)
