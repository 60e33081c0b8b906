"""A client of one door, and what it saw: it reads the bytes as they come, and knows no SDK."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientWebSocketResponse,
    WSMsgType,
    WSServerHandshakeError,
)

from tests.door_matrix.door import Door, find

MODEL = "fake-model"
PATIENCE_SECONDS = 20.0
"""Until an answer must have ended, or begun."""


@dataclass
class Visit:
    """What one client has seen so far.

    Attributes:
        status: HTTP's; 0 = none has come.
        text: of the answer.
        kind: of the error, in the door's words; "" = none was told.
        whole: whether the door's own mark of a whole answer came.
        broken: whether the connection ended without an orderly end.
        open: whether a WebSocket takes further messages after the answer's end.
        error: the message that told the error.
        socket: the WebSocket, once it is open.
        began: set with the first text, or with an end that comes before it.
    """

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    kind: str = ""
    whole: bool = False
    broken: bool = False
    open: bool = False
    error: Any = None
    socket: ClientWebSocketResponse | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    async def begin(self) -> None:
        """Return once there is text; fails if the answer has ended without."""
        await asyncio.wait_for(self.began.wait(), PATIENCE_SECONDS)
        assert self.text, self

    async def finish(self) -> None:
        """Return once everything is read."""
        assert self.task is not None
        await asyncio.wait_for(asyncio.shield(self.task), PATIENCE_SECONDS)


@asynccontextmanager
async def visiting(
    door: Door,
    http: ClientSession,
    flow: str,
    question: str,
    *,
    model: str = MODEL,
    key: str | None = None,
    word: str | None = None,
) -> AsyncIterator[Visit]:
    """Ask, and read inside the block; leaving it early is a client that leaves. `word`: the `Idempotency-Key`."""
    visit = Visit()
    asked = door.make_question(flow, model, question, word)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    headers |= {"Idempotency-Key": word} if word is not None and door.way != "socket" else {}
    visit.task = asyncio.create_task(_read(_Reader(door, visit), http, door.path.format(flow=flow), asked, headers))
    try:
        yield visit
    finally:
        visit.task.cancel()
        await asyncio.wait([visit.task])
    if not visit.task.cancelled():
        visit.task.result()


class _Reader:
    """Data of events, bodies and messages -> what a visit has seen."""

    def __init__(self, door: Door, visit: Visit) -> None:
        self.door = door
        self.visit = visit

    def take(self, data: str) -> bool:
        """Whether it ends the answer."""
        door, visit = self.door, self.visit
        if data != "[DONE]":
            for content in door.read_contents(data):
                self._take(content)
        visit.whole = visit.whole or (bool(door.last) and door.last in data and not visit.kind)
        return visit.whole or any(mark in data for mark in door.failed)

    def _take(self, content: Any) -> None:
        door, visit = self.door, self.visit
        text = find(door.text, content)
        if text and isinstance(text, str):
            visit.text += text
            visit.began.set()
        kinds = [kind for place in door.kinds if isinstance(kind := find(place, content), str)]
        if kinds:
            visit.kind, visit.error = door.sentence or kinds[0], content


async def _read(reader: _Reader, http: ClientSession, path: str, asked: str, headers: Mapping[str, str]) -> None:
    visit = reader.visit
    try:
        if reader.door.way == "socket":
            async with http.ws_connect(path, headers=headers) as socket:
                visit.status, visit.socket = 101, socket
                if reader.door.greeting:
                    await socket.send_str(reader.door.greeting)
                    await socket.receive_str()
                await socket.send_str(asked)
                await _read_messages(reader, socket)
        else:
            async with http.post(path, data=asked.encode(), headers=headers) as response:
                visit.status, visit.headers = response.status, response.headers
                await _read_answer(reader, response)
    except WSServerHandshakeError as refused:
        visit.status, visit.headers = refused.status, refused.headers or {}
    except (ClientError, ConnectionError):
        visit.broken = True
    finally:
        visit.began.set()


async def _read_answer(reader: _Reader, response: ClientResponse) -> None:
    if response.content_type == "application/json":
        text = await response.text()
        reader.take(text)
        if response.status != 200:
            # So that whoever expected an answer shows why there is none.
            reader.visit.error = reader.visit.error or text
        reader.visit.whole = response.status == 200
        return
    assert reader.door.way == "events", response
    async for line in response.content:
        if line.startswith(b"data: ") or response.content_type == "application/x-ndjson":
            reader.take(line.removeprefix(b"data: ").decode().strip())


async def _read_messages(reader: _Reader, socket: ClientWebSocketResponse) -> None:
    ended = False
    while not ended:
        message = await socket.receive()
        if message.type is not WSMsgType.TEXT:
            reader.visit.broken = True
            return
        ended = reader.take(message.data)
    # Nonsense is answered: nothing else shows that the socket is still of use.
    await socket.send_str("{")
    reader.visit.open = (await socket.receive()).type is WSMsgType.TEXT
