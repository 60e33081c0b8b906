"""Ways to ask: a body is posted, or messages go through a WebSocket, and all that comes back is read as JSON."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.flow.command import ran
from tests.same_answer.row import MODEL, SYSTEM, Asked, Place, Send
from tg_client import TgClient
from tg_client.flow import Flow
from tg_schema import Sampling

Body = Callable[[Asked], Mapping[str, Any]]
NOTHING: Mapping[str, Any] = {}


def whole(path: str, body: Body, more: Mapping[str, Any] = NOTHING) -> Send:
    """One body of JSON, and the headers of the answer."""

    async def send(place: Place, asked: Asked) -> list[Any]:
        async with place.http.post(path, json={**body(asked), **more}) as response:
            assert response.status == 200, await response.text()
            assert "X-Tokengrid-Ignored" not in response.headers
            return [await response.json(), response.headers]

    return send


def streamed(path: str, body: Body, more: Mapping[str, Any] = NOTHING) -> Send:
    """Each event, or each line, that has JSON."""

    async def send(place: Place, asked: Asked) -> list[Any]:
        async with place.http.post(path, json={**body(asked), **more}) as response:
            assert response.status == 200, await response.text()
            assert "X-Tokengrid-Ignored" not in response.headers
            lines = [line.removeprefix(b"data: ") async for line in response.content]
            return [json.loads(line) for line in lines if line.startswith(b"{")]

    return send


def talked(path: str, message: Callable[[Asked], str], last: Callable[[Any], bool]) -> Send:
    """The messages of a WebSocket up to the last one; before the JSON of each there may be a verb."""

    async def send(place: Place, asked: Asked) -> list[Any]:
        async with place.http.ws_connect(path) as socket:
            await socket.send_str(message(asked))
            told: list[Any] = []
            while not told or not last(told[-1]):
                data = await socket.receive_str()
                found = json.loads(data.removeprefix("TOKEN "))
                told += found if isinstance(found, list) else [found]
            return told

    return send


def called(*, socket: bool, streaming: bool) -> Send:
    """The Python SDK's result, or the records of its stream."""

    async def send(place: Place, asked: Asked) -> list[Any]:
        async with TgClient(place.url, retries=0) as client:
            if not socket:
                return await _call(client.flow(None), asked, streaming=streaming)
            async with client.socket() as opened:
                return await _call(opened.flow(None), asked, streaming=streaming)

    return send


async def _call(flow: Flow, asked: Asked, *, streaming: bool) -> list[Any]:
    case = asked.case
    stop = () if case.stop is None else (case.stop,)
    sampling = Sampling(case.temperature, max_tokens=case.max_tokens, stop=stop, seed=case.seed, logprobs=0)
    if not streaming:
        return [await flow.text_completion(SYSTEM, case.question, model=MODEL, sampling=sampling)]
    async with flow.text_completion_stream(SYSTEM, case.question, model=MODEL, sampling=sampling) as records:
        return [record async for record in records]


async def commanded(place: Place, asked: Asked) -> list[Any]:
    """The lines of `tg-invoke-llm --json`."""
    case = asked.case
    limits = ("--temperature", str(case.temperature), "--max-tokens", str(case.max_tokens))
    ended = await ran("tg-invoke-llm", SYSTEM, case.question, "-u", place.url, "-m", MODEL, "--json", *limits)
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]
