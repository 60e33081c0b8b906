"""Every byte of the native protocol, as it has always been: what clients were written against may not change.

`native_wire.txt` is the table: for each case its name, then what the gateway sent, a line for each line break. What
differs from run to run is replaced by a word in angle brackets.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.failing_llm import FailingLlm
from tests.fakes.scripted_agent import ScriptedAgent
from tests.flow.open_agent import open_agent
from tests.flow.open_gateway import ON_ANY_PORT, open_gateway
from tests.flow.raw_http import RawConnection, raw_connection
from tests.flow.socket_frames import masked, upgrade
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.access import Limits
from tg_schema import AgentResponse

TABLE = Path(__file__).with_suffix("").with_name("native_wire.txt")
COMPLETION, PROMPT, AGENT = "/api/v1/text-completion", "/api/v1/prompt", "/api/v1/agent"
LONG = "/api/v1/flow/{}/service/{}"
KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest(), requests_per_minute=1)
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))
MASKS = (
    (rb"(Date: )[^\r]+", rb"\1<date>"),
    (rb"(Server: )[^\r]+", rb"\1<server>"),
    (rb"(X-Stream-Id: )[0-9a-f]{32}\r", rb"\1<stream>\r"),
    (rb"(Retry-After: )\d+", rb"\1<seconds>"),
    (rb'("retry_after":)[\d.]+', rb"\1<seconds>"),
)
Play = Callable[[], Awaitable[bytes]]


async def read(raw: RawConnection) -> bytes:
    """One whole HTTP answer."""
    head = await raw.until(b"\r\n\r\n")
    if b"chunked" in head:
        return head + await raw.until(b"0\r\n\r\n")
    if length := re.search(rb"Content-Length: (\d+)", head):
        return head + await asyncio.wait_for(raw.reader.readexactly(int(length[1])), 5)
    return head + await raw.rest()


def encoded(body: object) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


@asynccontextmanager
async def connected(
    config: GatewayConfig, llm: CountingLlm | None, limits: Limits | None
) -> AsyncIterator[RawConnection]:
    async with open_gateway(config, llm=llm, limits=limits) as it, raw_connection(it.address) as raw:
        yield raw


def rest(
    path: str,
    *bodies: object,
    method: str = "POST",
    headers: str = "",
    version: str = "1.1",
    config: GatewayConfig = ON_ANY_PORT,
    limits: Limits | None = None,
    failing: bool = False,
) -> Play:
    """Requests one after the other on one connection; the answer to the last."""

    async def play() -> bytes:
        async with connected(config, FailingLlm() if failing else None, limits) as raw:
            answer = b""
            for body in bodies or (b"",):
                data = encoded(body)
                line = f"{method} {path} HTTP/{version}\r\nHost: localhost\r\nX-Request-Id: mine\r\n"
                raw.send(f"{line}Content-Length: {len(data)}\r\n{headers}\r\n".encode() + data)
                answer = await read(raw)
            return answer

    return play


def agent(body: object, *records: AgentResponse) -> Play:
    async def play() -> bytes:
        async with open_agent(ScriptedAgent(records) if records else None) as it:
            address = "127.0.0.1", int(it.gateway.url.rsplit(":", 1)[1].strip("/"))
            async with raw_connection(address) as raw:
                raw.post(AGENT, encoded(body), headers="X-Request-Id: mine\r\n")
                return await read(raw)

    return play


async def streamed() -> bytes:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        raw.post(COMPLETION, encoded({"prompt": "1", "streaming": True}), headers="X-Request-Id: mine\r\n")
        return await read(raw)


async def keep_alive() -> bytes:
    config = GatewayConfig(port=0, keep_alive=0.02)
    async with open_gateway(config) as it, raw_connection(it.address) as raw:
        it.llm.step = asyncio.Semaphore(0)
        raw.post(COMPLETION, encoded({"prompt": "1", "streaming": True}), headers="X-Request-Id: mine\r\n")
        return await raw.until(b"keep-alive\n\n\r\n")


async def draining() -> bytes:
    async with open_gateway(GatewayConfig(port=0, drain=0.01)) as it, raw_connection(it.address) as raw:
        it.llm.step = asyncio.Semaphore(1)
        raw.post(COMPLETION, encoded({"prompt": "2", "streaming": True}), headers="X-Request-Id: mine\r\n")
        head = await raw.until(b"\n\n\r\n")
        await it.gateway.__aexit__(None, None, None)
        await asyncio.wait_for(it.llm.stopped.wait(), 1)
        return head + await raw.rest()


def socket(
    message: object,
    end: bytes = b'"complete":true}',
    config: GatewayConfig = ON_ANY_PORT,
    headers: str = "",
    failing: bool = False,
) -> Play:
    """The frames that answer one message, up to `end`."""

    async def play() -> bytes:
        async with connected(config, FailingLlm() if failing else None, None) as raw:
            await upgrade(raw, headers)
            raw.send(masked(encoded(message)))
            return await raw.until(end)

    return play


async def handshake() -> bytes:
    async with connected(ON_ANY_PORT, None, None) as raw:
        return await upgrade(raw, "X-Request-Id: mine\r\n")


async def cancelled() -> bytes:
    async with open_gateway() as it, raw_connection(it.address) as raw:
        await upgrade(raw)
        it.llm.step = asyncio.Semaphore(1)
        raw.send(masked(encoded(asked(7, "2", streaming=True))))
        first = await raw.until(b'"complete":false}')
        raw.send(masked(encoded(asked(7, "1"))))
        refused = await raw.until(b'"complete":false}')
        raw.send(masked(b'{"id":7,"cancel":true}'))
        return first + refused + await raw.until(b'"complete":true}')


def asked(name: object, prompt: str, **more: object) -> dict[str, object]:
    return {"id": name, "service": "text-completion", "request": {"prompt": prompt, **more}}


MODELS = {"operation": "list-models"}
FLOWS = {"id": 1, "service": "flow", "request": {"operation": "list-flows"}}
GET_FLOW = {"id": 1, "service": "flow", "request": {"operation": "get-flow", "flow-id": "default"}}
TEXT = {"id": "text", "terms": {"a": "é"}}
SAID = AgentResponse("thought", "th", message_id="m/1")
ACTED = AgentResponse("action", "", end_of_message=True, message_id="m/2", tool="t", arguments="{}", call_id="m/2")
DONE = AgentResponse(
    "answer", "is", end_of_message=True, end_of_dialog=True, message_id="m/3", in_token=3, model="x", path=("sub",)
)
CASES: dict[str, Play] = {
    "whole completion": rest(COMPLETION, {"prompt": "2"}),
    "whole completion of a flow": rest(LONG.format("default", "text-completion"), {"prompt": "2"}),
    "whole completion, HTTP/1.0": rest(COMPLETION, {"prompt": "2"}, version="1.0"),
    "models": rest(COMPLETION, MODELS),
    "models, streaming": rest(COMPLETION, MODELS | {"streaming": True}),
    "whole prompt": rest(PROMPT, TEXT),
    "whole object": rest(PROMPT, {"id": "object", "terms": {"a": "1"}}),
    "streamed prompt without text": rest(PROMPT, {"id": "text", "streaming": True}),
    "streamed object": rest(PROMPT, {"id": "object", "terms": {"a": "1"}, "streaming": True}),
    "streamed completion of nothing": rest(COMPLETION, {"prompt": "0", "streaming": True}),
    "streamed completion, HTTP/1.0": rest(COMPLETION, {"prompt": "0", "streaming": True}, version="1.0"),
    "streamed completion, to be closed": rest(
        COMPLETION, {"prompt": "0", "streaming": True}, headers="Connection: close\r\n"
    ),
    "streamed completion, second of a connection": rest(
        COMPLETION, {"prompt": "0"}, {"prompt": "0", "streaming": True}
    ),
    "streamed completion": streamed,
    "keep-alive": keep_alive,
    "drained in mid-stream": draining,
    "failed in mid-stream": rest(COMPLETION, {"prompt": "1", "streaming": True}, failing=True),
    "failed whole": rest(COMPLETION, {"prompt": "1"}, failing=True),
    "whole agent": agent({"question": "?"}, SAID, ACTED, DONE),
    "streamed agent": agent({"question": "?", "streaming": True}, SAID, ACTED, DONE),
    "no JSON": rest(COMPLETION, b"{"),
    "no prompt": rest(COMPLETION, {}),
    "no id": rest(PROMPT, {}),
    "no question": agent({}),
    "a field of another API": rest(COMPLETION, {"prompt": "1", "temperature": 1}),
    "unknown model, streaming": rest(COMPLETION, {"prompt": "1", "model": "x", "streaming": True}),
    "unknown flow": rest(LONG.format("x", "prompt"), TEXT),
    "unknown flow, body over the limit": rest(
        LONG.format("x", "prompt"), b" " * 20, config=GatewayConfig(port=0, body_limit=9)
    ),
    "unknown service": rest(LONG.format("default", "x"), {}),
    "unknown path": rest("/api/v1/nope", {}),
    "path of nobody": rest("/nope", {}),
    "wrong method": rest(COMPLETION, method="PUT"),
    "wrong method of the socket": rest("/api/v1/socket", method="POST"),
    "no upgrade": rest("/api/v1/socket", method="GET"),
    "body over the limit": rest(COMPLETION, b" " * 20, config=GatewayConfig(port=0, body_limit=9)),
    "no token": rest(COMPLETION, {"prompt": "0"}, config=LOCKED),
    "no token, unknown path": rest("/x", {"prompt": "0"}, config=LOCKED),
    "wrong token": rest(COMPLETION, {}, config=LOCKED, headers="Authorization: Bearer wrong\r\n"),
    "right token": rest(COMPLETION, {"prompt": "0"}, config=LOCKED, headers="Authorization: Bearer right\r\n"),
    "key used up": rest(
        COMPLETION, {"prompt": "0"}, {"prompt": "0"}, config=LOCKED, headers="Authorization: Bearer right\r\n"
    ),
    "too many wrong tokens": rest(
        COMPLETION, {}, {}, config=LOCKED, limits=Limits(failures=1), headers="Authorization: Bearer wrong\r\n"
    ),
    "foreign page": rest(COMPLETION, {}, headers="Origin: http://evil.example\r\n"),
    "socket: handshake": handshake,
    "socket: auth": socket({"type": "auth", "token": "x"}, end=b"}"),
    "socket: wrong token": socket({"type": "auth", "token": "x"}, end=b"}", config=LOCKED),
    "socket: no token": socket(asked("a", "0"), config=LOCKED),
    "socket: token in the handshake": socket(asked("a", "0"), config=LOCKED, headers="Authorization: Bearer right\r\n"),
    "socket: whole": socket(asked(-7, "2")),
    "socket: streamed": socket(asked('é"', "0", streaming=True)),
    "socket: object": socket({"id": "o", "service": "prompt", "request": {"id": "object", "streaming": True}}),
    "socket: failed": socket(asked("a", "1", streaming=True), failing=True),
    "socket: bad request": socket(asked("a", "1", temperature=1)),
    "socket: unknown model": socket(asked("a", "1", model="x")),
    "socket: unknown service": socket({"id": 1, "service": "x", "request": {}}),
    "socket: no service": socket({"id": 1}),
    "socket: no JSON": socket(b"{"),
    "socket: no id": socket(b"{}"),
    "socket: too long an id": socket({"id": "a" * 300}),
    "socket: body over the limit": socket(asked("a", "1" * 100), config=GatewayConfig(port=0, body_limit=100)),
    "socket: flows": socket(FLOWS),
    "socket: flow": socket(GET_FLOW),
    "socket: wrong operation": socket({"id": 1, "service": "flow", "request": {}}),
    "socket: cancelled": cancelled,
}


def shown(answer: bytes) -> str:
    """As the table has it."""
    for pattern, mask in MASKS:
        answer = re.sub(pattern, mask, answer)
    if b"<seconds>" in answer:
        answer = re.sub(rb"(Content-Length: )\d+", rb"\1<length>", answer)
    text = answer.decode("utf-8", "surrogateescape").replace("\r", "\\r")
    return "".join(
        letter if letter == "\n" or letter.isprintable() else f"\\x{ord(letter) & 0xFF:02x}" for letter in text
    )


def table() -> dict[str, str]:
    rows = re.split(r"^== (.*)\n", TABLE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    # The phrase of 413 is not the same in every Python; it stands only in status lines.
    phrase = f"413 {HTTPStatus(413).phrase}\\r"
    answers = (answer.removesuffix("\n").replace("413 <phrase>\\r", phrase) for answer in rows[1::2])
    return dict(zip(rows[::2], answers, strict=True))


def test_the_table_has_all_cases() -> None:
    assert list(table()) == list(CASES)


@pytest.mark.parametrize("case", CASES)
async def test_the_bytes(case: str) -> None:
    assert shown(await CASES[case]()) == table()[case]
