"""Kept streams -> the list of their API key, the oldest first, which an audit reader follows."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

import structlog

from tg_gateway.dialects import KEPT_SECONDS
from tg_gateway.jobs.key_list import KeyList, find_listed
from tg_gateway.jobs.logs import JobLogs
from tg_schema import encode
from tg_schema.errors import BusError
from tg_schema.live import ListedStream

log = structlog.get_logger()

MAX_LISTED_BYTES: Final = 4 * 1024 * 1024
"""Of the streams that one gateway lists for one key in a day: about 20,000 streams. Later ones are kept, not listed."""


class StreamList:
    """The streams of one key.

    Args:
        logs: those of all streams.
        owner: as `JobLogs.owner`.
    """

    def __init__(self, logs: JobLogs, owner: str) -> None:
        self._clock = logs.clock
        self._known = KeyList(logs, owner, "streams", KEPT_SECONDS)

    async def add(self, stream: ListedStream, seconds: float) -> None:
        """List a stream that is kept for so long; if it cannot be listed, the process's log says so."""
        try:
            if self._known.size < MAX_LISTED_BYTES:
                await self._known.add(stream.id, encode(stream), stream.begun + seconds)
            else:
                log.warning("stream.not_listed", stream=stream.id, reason="the key has begun too many today")
        except BusError as error:
            log.warning("stream.not_listed", stream=stream.id, reason=error.message)

    async def read(self) -> Sequence[bytes]:
        """As `KeptAnswers.list`."""
        return [body for body, _ in find_listed(await self._known.read(), self._clock()).values()]

    async def follow(self) -> AsyncGenerator[bytes, None]:
        """As `KeptAnswers.follow_list`, without a bound."""
        async with aclosing(self._known.follow()) as entries:
            async for entry in entries:
                if entry is None:
                    yield b""
                else:
                    for body, _ in find_listed((entry,), self._clock()).values():
                        yield body
