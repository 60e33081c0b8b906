"""Model servers' ZMQ sockets -> prefix owners: follows the KV cache events of the servers in the pools."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Annotated, Final

import structlog
import zmq
import zmq.asyncio
from msgspec import Meta, Struct
from typing_extensions import override
from zmq.utils.monitor import recv_monitor_message

from tg_base.runtime import Entered
from tg_picker.core import Endpoint, Scheduler
from tg_picker.pools.host import parse_port
from tg_picker.pools.kv_stream import KvStream
from tg_picker.pools.server_tasks import ServerTasks

log = structlog.get_logger()

EVENTS_LABEL: Final = "kv-events-port"
"""The label of a server whose port differs from the configured one."""
REPLAY_LABEL: Final = "kv-replay-port"
REPLAY_SECONDS: Final = 2.0
"""Seconds without a message after which a replay is given up."""
RECONNECT_SECONDS: Final = 1.0
"""Seconds before a lost server is connected to again, and between ZMQ's own attempts."""
MAX_MESSAGE_BYTES: Final = 1024 * 1024
"""Largest message, in bytes. ZMQ closes the connection of a server that sends a larger one; it counts as missed."""
MAX_UNREAD: Final = 100
"""Most messages of a server that wait to be read. The server drops further ones."""
MAX_LOOP_SHARE: Final = 0.25
"""Largest share of the event loop's time that the messages of all servers may take."""
BURST_SECONDS: Final = 0.05
"""Seconds by which the messages may exceed that share before reading pauses."""
MAX_REPLAYED: Final = 100_000
"""Most messages of one replay; servers keep 10,000."""
MAX_REPLAYS: Final = 100
"""Replays after which messages that are still missing are given up."""
_END: Final = 2**64 - 1
"""The number of the message that ends a replay."""
_MONITORED: Final = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
)

_Place = tuple[str, str, str | None]
"""The address of a server, and the URLs of its events and of its replays."""
_Port = Annotated[int, Meta(ge=1, le=65535)]


class KvEventOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ports on which servers publish their KV cache events.

    A server's labels `kv-events-port` and `kv-replay-port` take precedence.

    Attributes:
        port: the port of the event messages.
        replay_port: the port on which a server repeats its last messages; None = none, so any restart loses messages.
    """

    port: _Port = 5557
    replay_port: _Port | None = None


class KvSubscriber(Entered):
    """Follows servers while it is entered. One that is unreachable, silent or of another kind does not delay others.

    The log says `kv_events.followed` when a server is reached, and `kv_events.missed` when messages were lost.

    Args:
        scheduler: the scheduler of these servers.
        options: the ports on which they publish.
    """

    def __init__(self, scheduler: Scheduler, options: KvEventOptions) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._options = options
        self._tasks: ServerTasks[_Place] = ServerTasks()
        self._busy_until = 0.0

    @override
    async def _start(self, stack: AsyncExitStack) -> None:
        self._context = zmq.asyncio.Context()
        stack.callback(self._context.term)
        stack.push_async_callback(self._tasks.aclose)

    def update(self, endpoints: Sequence[Endpoint]) -> None:
        """Follow these servers from now on."""
        places = {place: each for each in endpoints if (place := self._find(each)) is not None}
        self._tasks.update({place: partial(self._follow, place, each) for place, each in places.items()})

    def _find(self, endpoint: Endpoint) -> _Place | None:
        host, options = endpoint.address.rpartition(":")[0], self._options
        ports = {EVENTS_LABEL: options.port, REPLAY_LABEL: options.replay_port}
        for label in ports.keys() & endpoint.labels.keys():
            ports[label] = parse_port(endpoint.labels[label])
            if ports[label] is None:
                log.error("kv_events.refused", server=endpoint.name, reason=f"the label {label} is no port")
                return None
        events, replay = ports.values()
        return endpoint.address, f"tcp://{host}:{events}", None if replay is None else f"tcp://{host}:{replay}"

    @contextmanager
    def _socket(self, kind: int) -> Iterator[zmq.asyncio.Socket]:
        with self._context.socket(kind) as socket:
            socket.linger = 0
            socket.rcvhwm = MAX_UNREAD
            socket.maxmsgsize = MAX_MESSAGE_BYTES
            socket.ipv6 = True
            socket.reconnect_ivl_max = 5_000
            yield socket

    async def _follow(self, place: _Place, endpoint: Endpoint) -> None:
        stream = KvStream(self._scheduler.server(endpoint), lambda: self._scheduler.restarted(endpoint))
        while True:
            try:
                await self._listen(place, stream)
            finally:
                stream.show(is_followed=False)
            # Reconnect explicitly, since ZMQ gives up a server for ever after one malformed message.
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self, place: _Place, stream: KvStream) -> None:
        """Read a server's messages until its connection is lost."""
        with self._socket(zmq.SUB) as socket, socket.get_monitor_socket(_MONITORED) as monitor:
            socket.subscribe(b"")
            socket.connect(place[1])
            poller = zmq.asyncio.Poller()
            poller.register(monitor, zmq.POLLIN)
            poller.register(socket, zmq.POLLIN)
            try:
                while True:
                    ready = dict(await poller.poll())
                    if monitor not in ready:
                        await self._take(place, stream, await socket.recv_multipart())
                    elif (await recv_monitor_message(monitor))["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED:
                        return
                    else:
                        # A new process may publish there now.
                        await self._catch_up(place, stream, is_new=True)
                        log.info("kv_events.followed", server=place[0], complete=stream.is_complete)
                    stream.show(is_followed=True)
            finally:
                socket.disable_monitor()

    async def _take(self, place: _Place, stream: KvStream, frames: list[bytes]) -> None:
        message = _split(frames)
        if message is None or await self._apply(stream, *message):
            return
        was_complete = stream.is_complete
        await self._catch_up(place, stream)
        await self._apply(stream, *message, final=True)
        if was_complete and not stream.is_complete:
            log.warning("kv_events.missed", server=place[0])

    async def _apply(self, stream: KvStream, seq: int, payload: bytes, *, final: bool = False) -> bool:
        clock, steps = asyncio.get_running_loop().time, stream.take(seq, payload, final=final)
        while True:
            began = clock()
            try:
                next(steps)
            except StopIteration as done:
                return bool(done.value)
            finally:
                # A backlog of messages must not delay requests.
                self._busy_until = max(self._busy_until, began) + (clock() - began) / MAX_LOOP_SHARE
                await asyncio.sleep(max(self._busy_until - clock() - BURST_SECONDS, 0))

    async def _catch_up(self, place: _Place, stream: KvStream, *, is_new: bool = False) -> None:
        """Fetch missed messages, as far as the server still has them.

        Args:
            place: the server's addresses.
            stream: the server's events.
            is_new: whether a new process may publish there now.
        """
        url, asked = place[2], 0
        with suppress(TimeoutError):
            while url is not None and asked < MAX_REPLAYS:
                if not await self._replay(url, stream):
                    return
                asked += 1
        if is_new:
            stream.forget()

    async def _replay(self, url: str, stream: KvStream) -> bool:
        """Request messages from the last known one on: comparing that one shows whether it is the same process.

        Returns whether to request a replay again.
        """
        known = stream.last
        is_checked = known is None
        with self._socket(zmq.DEALER) as socket:
            socket.connect(url)
            await socket.send_multipart([b"", (known or 0).to_bytes(8, "big")])
            for _ in range(MAX_REPLAYED):
                async with asyncio.timeout(REPLAY_SECONDS):
                    message = _split(await socket.recv_multipart())
                if message is None or message[0] == _END:
                    break
                if not is_checked and message[0] == known:
                    if not stream.is_last(message[1]):
                        stream.begin_anew()
                        return True
                # The server's history begins later, or its socket was full: request the missing messages once more.
                elif not await self._apply(stream, *message, final=stream.last == known):
                    return True
                is_checked = True
        if not is_checked:
            # The server does not have the last message that we applied.
            stream.begin_anew()
            return True
        if stream.last is None:
            stream.is_complete = True
        # The server's socket may have been too full for further messages, too.
        return stream.last != known


def _split(frames: list[bytes]) -> tuple[int, bytes] | None:
    """Number and payload of a message, whatever parts come before them; None: it is not a valid message."""
    return (int.from_bytes(frames[-2], "big"), frames[-1]) if len(frames) >= 2 and len(frames[-2]) == 8 else None
