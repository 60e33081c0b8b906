"""Many clients at once, half through server-sent events and half through one WebSocket, and what became of each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tg_client import TgClient
from tg_client.flow import Flow
from tg_schema import TgError

STREAMS = 50
TIMEOUT = 60.0


@dataclass
class LiveStream:
    """One client.

    Attributes:
        error: the one error that ended it.
        whole: whether the last record came.
        ended_at: loop time of the end.
        began: set with the first text, or with an end that comes before it.
        over: set with the end.
    """

    prompt: str
    text: str = ""
    error: TgError | None = None
    whole: bool = False
    ended_at: float = 0.0
    began: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, flow: Flow, timeout: float) -> None:
        """Ask, and read to the end, whatever that is."""
        try:
            async with flow.text_completion_stream("", self.prompt, timeout=timeout) as chunks:
                async for chunk in chunks:
                    self.text += chunk.response or ""
                    if chunk.response:
                        self.began.set()
                    self.whole = bool(chunk.end_of_stream)
        except TgError as error:
            self.error = error
        finally:
            self.ended_at = asyncio.get_running_loop().time()
            self.began.set()
            self.over.set()


class LiveStreams:
    """Streams that are read in the background."""

    def __init__(self, streams: list[LiveStream]) -> None:
        self.streams = streams

    async def begun(self, within: float) -> None:
        """Return once every stream has text; fails if one has ended without."""
        async with asyncio.timeout(within):
            for stream in self.streams:
                await stream.began.wait()
                assert stream.text, stream.error

    async def any_begun(self, within: float) -> None:
        """Return once one stream has text."""
        waits = [asyncio.create_task(stream.began.wait()) for stream in self.streams]
        try:
            done, _ = await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            assert done
        finally:
            for wait in waits:
                wait.cancel()

    async def over(self, within: float) -> None:
        """Return once every stream has ended."""
        async with asyncio.timeout(within):
            for stream in self.streams:
                await stream.over.wait()

    @property
    def whole(self) -> list[LiveStream]:
        """Those that have their whole answer."""
        return [stream for stream in self.streams if stream.whole]

    @property
    def failed(self) -> dict[str, int]:
        """How many ended in which kind of error."""
        kinds = [stream.error.type for stream in self.streams if stream.error is not None]
        return {kind: kinds.count(kind) for kind in kinds}


@asynccontextmanager
async def live_streams(
    url: str, flow: str, *, count: int = STREAMS, timeout: float = TIMEOUT, prefix: str = "p"
) -> AsyncIterator[LiveStreams]:
    """Start them all; on leaving, those that still run are left as a client leaves."""
    streams = [LiveStream(f"{prefix}{number}") for number in range(count)]
    async with TgClient(url, retries=0) as client, client.socket() as socket:
        doors = (client.flow(flow), socket.flow(flow))
        tasks = [asyncio.create_task(stream.read(doors[number % 2], timeout)) for number, stream in enumerate(streams)]
        try:
            yield LiveStreams(streams)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
    defects = [result for result in results if isinstance(result, Exception)]
    if defects:
        raise defects[0]


async def asked(url: str, flow: str, prompt: str, within: float) -> str:
    """The text of one new answer; asked again as long as the error says that it may help."""
    async with asyncio.timeout(within), TgClient(url, retries=0) as client:
        while True:
            try:
                return (await client.flow(flow).text_completion("", prompt, timeout=within)).text
            except TgError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.1)
