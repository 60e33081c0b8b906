"""Messages that come to a socket all at once, each of which is work, hold up nobody else until the last of them."""

import asyncio
import time

from typing_extensions import override

from tests.fakes.parley import Parley
from tests.flow.open_gateway import MOUNTS, open_gateway
from tests.flow.raw_http import raw_connection
from tests.flow.socket_frames import masked, upgrade
from tg_base.config import GatewayConfig
from tg_gateway.dialects import Conversation, Mount, Socket
from tg_gateway.websocket.handler import TAKING_SECONDS

MESSAGES = 20


class _Laborious(Parley, Conversation):
    """Takes longer for each message than a socket may have at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self.done = asyncio.Event()

    @override
    def configure(self, config: GatewayConfig) -> "_Laborious":
        return self

    @override
    def converse(self, socket: Socket) -> Conversation:
        return self

    @override
    def take(self, message: bytes) -> None:
        time.sleep(TAKING_SECONDS * 1.1)
        self.taken += 1
        if self.taken == MESSAGES:
            self.done.set()


async def test_others_have_their_turns_between_the_messages_of_one_socket() -> None:
    laborious = _Laborious()
    mounts = (*MOUNTS, Mount("GET", "/laborious", laborious, "converse", socket=True))
    async with open_gateway(mounts=mounts) as it, raw_connection(it.address) as raw:
        await upgrade(raw, path="/laborious")
        raw.send(b"".join([masked(b"work")] * MESSAGES))
        seen = {0}
        while not laborious.done.is_set():
            await asyncio.sleep(0)
            seen.add(laborious.taken)
        assert seen == {*range(MESSAGES + 1)}
