"""A whole answer -> its connection, in slices: one large write would copy it all at once and block the event loop."""

import asyncio

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from typing_extensions import override

from tg_gateway.dialects import slice_output


class SlicedBody(Payload):
    """The body of an answer.

    Args:
        body: the whole body.
        patience: seconds that the client may leave a slice unread.
    """

    def __init__(self, body: bytes, patience: float) -> None:
        super().__init__(body)
        self._size = len(body)
        self._patience = patience

    @override
    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    @override
    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body; other tasks get their turns between slices.

        Raises:
            TimeoutError: the client did not read a slice in time.
        """
        for part in slice_output(self._value):
            async with asyncio.timeout(self._patience):
                await writer.write(part)
                await writer.drain()
            await asyncio.sleep(0)
