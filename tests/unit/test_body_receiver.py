"""A large request's body: whole, however its parts come."""

import asyncio

from tests.fakes.given_delivery import GivenDelivery
from tg_base.protocol import Part, StreamKey
from tg_base.server.body_receiver import BodyReceiver

KEY = StreamKey("s", 1)


async def test_parts_that_come_late_or_twice_are_there_once() -> None:
    receiver, asked = BodyReceiver(), list[int]()
    fetching = asyncio.create_task(receiver.fetch(KEY, 9, asked.append))
    await asyncio.sleep(0)
    for offset, part in ((3, b"345"), (0, b"012"), (0, b"012"), (3, b"345"), (6, b"678"), (6, b"678")):
        assert receiver.take(GivenDelivery(part, Part(KEY, offset).properties))
    assert await fetching == b"012345678"
    assert asked == [0]
