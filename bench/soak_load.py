"""Soak's near end: clients of every kind, and the book that says what became of each request."""

import asyncio
import contextlib
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import aiohttp
import msgspec

from bench.soak_pipeline import REQUEST_TIMEOUT, Member
from bench.soak_text import Question
from tg_schema import TgError
from tg_schema.errors import Cancelled

PATIENCE = REQUEST_TIMEOUT + 10.0
"""Seconds after which a client that has no end yet is hung: the gateway's own deadline, and some for a busy machine."""
GRACE = 2.0
"""Seconds between a gateway's death and the moment that its client notices it."""
TYPES = {kind.type for kind in TgError.__subclasses__()} | {"auth-required"}
REST, PROMPT = "/api/v1/text-completion", "/api/v1/prompt"


class End(StrEnum):
    """How a request ended, as its client saw it."""

    WHOLE = "completed"
    TYPED = "failed, typed"
    CONNECTION = "failed, connection"
    REFUSED = "refused, gateway away"
    LEFT = "left"
    LOST = "lost"
    HUNG = "hung"
    WRONG = "wrong"


BAD = (End.LOST, End.HUNG, End.WRONG)


@dataclass
class Answer:
    """What a client has of an answer.

    Attributes:
        headed: whether the gateway has said anything at all.
        error: the type of the error that ended it.
        whole: whether the last record has come.
    """

    question: Question
    text: str = ""
    headed: bool = False
    error: str | None = None
    whole: bool = False
    left: bool = False

    def take(self, record: dict[str, Any]) -> None:
        """One record."""
        self.headed = True
        if (error := record.get("error")) is not None:
            self.error = str(error.get("type"))
        else:
            self.text += record.get("response", record.get("text")) or ""
            self.whole = bool(record.get("end_of_stream"))

    @property
    def ended(self) -> bool:
        """Whether nothing may follow."""
        return self.whole or self.error is not None

    @property
    def end(self) -> End | None:
        """How it ended, as far as its own bytes tell."""
        if not self.question.right(self.text, whole=self.whole) or self.error not in {None, *TYPES}:
            return End.WRONG
        if self.whole:
            return End.WHOLE
        if self.left and self.error in {None, Cancelled.type}:
            return End.LEFT
        return End.TYPED if self.error is not None else None


@dataclass
class Book:
    """What became of all requests."""

    ends: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def write(self, kind: str, answer: Answer, gateway: Member, since: float, *, late: bool = False) -> None:
        """One request is over."""
        now = time.monotonic()
        end = self._judged(answer, gateway, since, now, late=late)
        self.ends[end] += 1
        self.kinds[kind] += 1
        self.slowest = max(self.slowest, now - since)
        if end is End.TYPED:
            self.errors[str(answer.error)] += 1
        if end in BAD:
            seen = f"error {answer.error}, {len(answer.text)} characters, whole {answer.whole}, headed {answer.headed}"
            outages = [f"{o.began - since:+.2f}..{o.ended - since:+.2f}" for o in gateway.outages[-2:]]
            where = f"{gateway.name} (away {', '.join(outages) or 'never'})"
            self.bad.append(f"{end}: {kind} at {where}, {answer.question} after {now - since:.2f} s: {seen}")

    def _judged(self, answer: Answer, gateway: Member, since: float, now: float, *, late: bool) -> End:
        end = answer.end
        if end is None and late:
            return End.HUNG
        if end is None:
            away = [outage for outage in gateway.outages if outage.meets(since - GRACE, now + GRACE)]
            if away and not answer.headed:
                return End.REFUSED
            return End.CONNECTION if any(outage.sudden for outage in away) else End.LOST
        return end

    @property
    def accepted(self) -> int:
        """Requests that reached a gateway that lived."""
        return sum(self.ends.values()) - self.ends[End.REFUSED]


Client = Callable[[Member], Coroutine[Any, Any, None]]


class SoakLoad:
    """A steady number of clients, each doing one thing after the other, at a gateway that it picks.

    Args:
        gateways: the doors.
        clients: how many at a time.
        seed: of what they do.
    """

    def __init__(self, gateways: list[Member], clients: int, seed: int) -> None:
        self.book = Book()
        self._gateways = gateways
        self._clients = clients
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        self._open = asyncio.Event()
        self._busy = 0
        self._idle = asyncio.Event()
        self._kinds: list[tuple[Client, int]] = [
            (self._stream, 6), (self._socket, 3), (self._whole, 3),
            (self._prompt, 2), (self._leave, 3), (self._slow, 1),
        ]  # fmt: skip

    def resume(self) -> None:
        """Ask."""
        self._open.set()

    async def pause(self) -> None:
        """Return once nobody asks any more."""
        self._open.clear()
        while self._busy:
            self._idle.clear()
            await self._idle.wait()

    async def run(self) -> None:
        """Until cancelled."""
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as self._http,
            asyncio.TaskGroup() as all_,
        ):
            for _ in range(self._clients):
                all_.create_task(self._client())

    async def _client(self) -> None:
        while True:
            await self._open.wait()
            gateway = self._random.choice(self._gateways)
            kinds, weights = zip(*self._kinds, strict=True)
            self._busy += 1
            try:
                await self._random.choices(kinds, weights)[0](gateway)
            finally:
                self._busy -= 1
                self._idle.set()
            await asyncio.sleep(self._random.random() * 0.2)

    def _question(self, *, pieces: int | None = None, gap: int | None = None, padding: int = 0) -> Question:
        pieces = self._random.randint(1, 60) if pieces is None else pieces
        gap = self._random.choice((0, 10, 30)) if gap is None else gap
        return Question(next(self._numbers), pieces, gap, padding)

    @contextlib.asynccontextmanager
    async def _booked(self, kind: str, gateway: Member, *answers: Answer) -> AsyncIterator[None]:
        """Ask within the block; however that ends, each answer comes to the book."""
        since, late = time.monotonic(), False
        try:
            async with asyncio.timeout(PATIENCE):
                yield
        except TimeoutError:
            late = True
        except (aiohttp.ClientError, ConnectionError, OSError):
            pass
        for answer in answers:
            self.book.write(kind, answer, gateway, since, late=late)
        if not any(answer.text for answer in answers):
            await asyncio.sleep(0.5 + self._random.random())

    async def _stream(self, gateway: Member) -> None:
        answer = Answer(self._question())
        async with self._booked("sse", gateway, answer):
            await self._events(gateway, answer, REST, completion(answer.question))

    async def _prompt(self, gateway: Member) -> None:
        answer = Answer(self._question())
        body = {"id": "question", "variables": {"question": answer.question.prompt}, "streaming": True}
        async with self._booked("prompt", gateway, answer):
            await self._events(gateway, answer, PROMPT, body)

    async def _leave(self, gateway: Member) -> None:
        """Leave after some records, or before the first."""
        answer = Answer(self._question(pieces=200, gap=30))
        most = self._random.choice((0, 1, 5))
        async with self._booked("leaving", gateway, answer):
            await self._events(gateway, answer, REST, completion(answer.question), most=most)

    async def _slow(self, gateway: Member) -> None:
        """Read two megabytes slowly, or nothing of them at all and leave."""
        answer = Answer(self._question(pieces=1000, gap=0, padding=2000))
        stuck = self._random.random() < 0.3
        async with self._booked("slow", gateway, answer):
            await self._events(gateway, answer, REST, completion(answer.question), pace=0.1, stuck=stuck)

    async def _events(
        self,
        gateway: Member,
        answer: Answer,
        path: str,
        body: dict[str, Any],
        *,
        most: int | None = None,
        pace: float = 0.0,
        stuck: bool = False,
    ) -> None:
        limit = 2**14 if pace else 2**16
        async with self._http.post(gateway.url + path, json=body, read_bufsize=limit) as response:
            answer.headed = True
            if response.status != 200:
                answer.take(msgspec.json.decode(await response.read()))
                return
            rest, records = b"", 0
            if most == 0 or stuck:
                await asyncio.sleep(5 if stuck else self._random.random())
                answer.left = True
                response.close()
                return
            async for data in response.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if event.startswith(b"data: "):
                        answer.take(msgspec.json.decode(event[6:]))
                        records += 1
                if answer.ended:
                    return
                if most is not None and records >= most:
                    answer.left = True
                    response.close()
                    return
                await asyncio.sleep(pace)

    async def _whole(self, gateway: Member) -> None:
        answer = Answer(self._question())
        body = completion(answer.question) | {"streaming": False}
        async with self._booked("whole", gateway, answer), self._http.post(gateway.url + REST, json=body) as response:
            answer.headed = True
            answer.take(msgspec.json.decode(await response.read()))

    async def _socket(self, gateway: Member) -> None:
        """Several streams on one socket; the last of them is cancelled after its first record."""
        answers = [Answer(self._question()) for _ in range(3)] + [Answer(self._question(pieces=200, gap=30))]
        path = gateway.url + "/api/v1/socket"
        async with self._booked("socket", gateway, *answers), self._http.ws_connect(path, max_msg_size=0) as socket:
            for name, answer in enumerate(answers):
                asked = {"id": str(name), "service": "text-completion", "request": completion(answer.question)}
                await socket.send_json(asked)
            await self._frames(socket, answers)

    async def _frames(self, socket: aiohttp.ClientWebSocketResponse, answers: list[Answer]) -> None:
        leaving = answers[-1]
        while not all(answer.ended for answer in answers):
            message = await socket.receive()
            if message.type is not aiohttp.WSMsgType.TEXT:
                return
            frame = msgspec.json.decode(message.data)
            if "id" in frame:
                answer = answers[int(frame["id"])]
                answer.take(frame if "error" in frame else frame["response"])
                if answer is leaving and not answer.ended and not answer.left:
                    answer.left = True
                    await socket.send_json({"id": str(len(answers) - 1), "cancel": True})


def completion(question: Question) -> dict[str, Any]:
    """A request for a streamed text completion."""
    return {"system": "", "prompt": question.prompt, "streaming": True}
