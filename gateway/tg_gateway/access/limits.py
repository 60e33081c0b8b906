"""Configuration -> every door: the time and resources that one client may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that keep one client from harming all others, in seconds, bytes and counts.

    Attributes:
        head: seconds within which a connection must deliver a request's whole head, and for which it may idle between
            two requests.
        body: seconds until the whole body of a request has come.
        linger: for how long the rest of a refused body is read, so that its sender sees our answer and not a reset.
        write: how long a client may leave waiting bytes unread before its connection is cut.
        sockets: WebSockets open at the same time.
        socket_streams: requests that run side by side on one WebSocket.
        socket_bytes: bytes that all streams of one WebSocket may hold for a client that does not read; beyond that, the
            streams that hold most end.
        socket_id: characters of a WebSocket request's id.
        failures: wrong tokens from one address, within `forget`, after which it must wait.
        forget: after how long wrong tokens are forgotten.
        background: answers of one key that are made in the background side by side.
        all_background: the same for all keys together.
        run: how long an answer in the background may take.
        waiting: answers of one key that wait on the bus for capacity.
        all_waiting: the same for all keys together.
        flex_pause: longest pause after a refusal before another waiting request of that model is taken.
        attempt_pause: longest pause before a waiting answer is asked for again after its first lost attempt; it doubles
            with each further one.
        part_bytes: bytes of one answer that are kept for its followers; beyond that, the answer can only be retrieved.
        followers: clients of one key that follow answers in the background side by side.
        all_followers: the same for all keys together.
        silence: how long such an answer's log may have no new entry before its gateway counts as dead.
        ready: how long the bus may take to answer before the gateway is not ready.
    """

    head: float = 15.0
    body: float = 30.0
    linger: float = 2.0
    write: float = 30.0
    sockets: int = 10_000
    socket_streams: int = 1000
    socket_bytes: int = 4 * 1024 * 1024
    socket_id: int = 256
    failures: int = 20
    forget: float = 60.0
    background: int = 64
    all_background: int = 256
    run: float = 3600.0
    waiting: int = 1000
    all_waiting: int = 4000
    flex_pause: float = 30.0
    attempt_pause: float = 4.0
    part_bytes: int = 8 * 1024 * 1024
    followers: int = 64
    all_followers: int = 256
    silence: float = 15.0
    ready: float = 2.0
