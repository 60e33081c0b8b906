"""An OpenAI-compatible server whose every answer has a text of its own, and goes on until the test lets it end.

The bytes are written by hand after OpenAI's public API reference ("Chat", "Streaming").
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from tests.fakes.openai_transcript import ChatBody, done, event, finish_event, first_event, usage_event
from tests.fakes.serve_routes import serve_routes

MODEL = "live"
PROMPT_TOKENS = 5
PIECE = re.compile(r"<(\d+)\.(\d+|end)>")


@dataclass
class Generation:
    """One request as the server saw it: a call that somebody pays.

    Attributes:
        number: which request it was; it stands in every piece of its text.
        prompt: the last message.
        sent: pieces that were written.
        left: set when the client's socket has closed before the end.
        left_at: loop time of that.
        ended: whether it was written to its end.
    """

    number: int
    prompt: str
    sent: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    left_at: float = 0.0
    ended: bool = False

    @property
    def over(self) -> bool:
        """Nothing more is generated."""
        return self.ended or self.left.is_set()


class LiveOpenAi:
    """Says "<number.0>", "<number.1>" ... every `pace` seconds; once `finish` is set, "<number.end>" and ends.

    Attributes:
        pace: seconds between two pieces.
        speak: until it is set, requests are taken and nothing is answered, not even a status.
        counts: whether every piece says how many tokens there are so far.
        pieces: after so many an answer ends by itself; 0 = none does.
        generations: every request, in order.
    """

    def __init__(self, pace: float) -> None:
        self.url = ""
        self.generations: list[Generation] = []
        self.speak, self.finish = asyncio.Event(), asyncio.Event()
        self.speak.set()
        self.counts, self.pieces = False, 0
        self.pace = pace
        self._changed = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def listening(cls, pace: float = 0.2) -> AsyncIterator["LiveOpenAi"]:
        """Serve on a free loopback port."""
        server = cls(pace)
        async with serve_routes({"POST /v1/chat/completions": server._answer}, "/v1") as server.url:
            yield server
            server.speak.set()
            server.finish.set()

    @property
    def running(self) -> list[Generation]:
        """Who generates now."""
        return [generation for generation in self.generations if not generation.over]

    def of(self, prompt: str) -> list[Generation]:
        """All calls for one prompt."""
        return [generation for generation in self.generations if generation.prompt == prompt]

    async def until(self, condition: Callable[[], bool], within: float) -> None:
        """Wait for something that the server sees."""
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(condition)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read(), type=ChatBody)
        prompt = body.messages[-1].content
        assert isinstance(prompt, str)
        generation = Generation(len(self.generations), prompt)
        self.generations.append(generation)
        try:
            await self._tell()
            await self.speak.wait()
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await self._generate(response, generation)
        except (asyncio.CancelledError, ConnectionError):
            generation.left_at = asyncio.get_running_loop().time()
            generation.left.set()
            await self._tell()
            raise
        generation.ended = True
        await self._tell()
        return response

    async def _generate(self, response: web.StreamResponse, generation: Generation) -> None:
        await response.write(first_event(MODEL))
        while True:
            last = generation.sent > 0 and (self.finish.is_set() or generation.sent + 1 == self.pieces)
            piece = f"<{generation.number}.{'end' if last else generation.sent}>"
            usage = usage_event(MODEL, PROMPT_TOKENS, generation.sent + 1)
            await response.write(event(MODEL, {"content": piece}) + (usage if self.counts else b""))
            generation.sent += 1
            if last:
                break
            await self._tell()
            try:
                await asyncio.wait_for(self.finish.wait(), self.pace)
            except TimeoutError:
                continue
        await response.write(finish_event(MODEL, "stop") + (b"" if self.counts else usage) + done())


def told(text: str, *, whole: bool) -> int:
    """Which generation a text is from; fails unless it is one generation's text from its beginning, without a hole."""
    pieces = PIECE.findall(text)
    assert "".join(f"<{number}.{place}>" for number, place in pieces) == text, text
    numbers, places = {number for number, _ in pieces}, [place for _, place in pieces]
    assert len(numbers) == 1, f"stitched from several generations: {text}"
    ended = places[-1] == "end"
    assert ended or not whole, f"not whole: {text}"
    assert places[: len(places) - ended] == [str(place) for place in range(len(places) - ended)], text
    return int(numbers.pop())
