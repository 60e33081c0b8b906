"""`tg-lmtp`: lines with parameters through a pipe, and its failures in a sentence."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.serve_routes import serve_routes
from tests.fakes.silent_server import SilentServer
from tests.fakes.token_llm import END, TokenLlm
from tests.fakes.unreading_socket import unreading_socket
from tests.flow.command import Ended, started
from tests.flow.open_gateway import open_gateway, until_listed
from tg_cli.lmtp_session import parse_line
from tg_client.transport import open_lmtp
from tg_schema import Sampling
from tg_schema.errors import Timeout, Unavailable


@pytest.mark.parametrize(
    ("line", "prompt", "parameters"),
    [
        ("Hello there", "Hello there", {}),
        ("Hello there temperature=1.2", "Hello there", {"temperature": 1.2}),
        ("a=b is text max_tokens=5 mode=text", "a=b is text", {"max_tokens": 5, "mode": "text"}),
        (' "two  blanks" ', '"two  blanks"', {}),
        ('[1, 2] logit_bias={"1":100} ', [1, 2], {"logit_bias": {"1": 100}}),
        ("[1, x]", "[1, x]", {}),
        ("temperature=1", "", {"temperature": 1}),
    ],
)
def test_lines(line: str, prompt: Any, parameters: dict[str, Any]) -> None:
    assert parse_line(line) == (prompt, parameters)


async def run(url: str, lines: str, model: str = "counting") -> Ended:
    async with started("tg-lmtp", model, "-u", url) as process:
        out, err = await process.communicate(lines.encode())
        return Ended(process.returncode, out.decode(), err.decode())


async def test_lines_are_completed() -> None:
    llm = TokenLlm()
    async with open_gateway(llm=llm) as it:
        await until_listed(it.http)
        done = await run(it.gateway.url, "Hello temperature=0.5\n\n[72, 73] max_tokens=1\nquit\nmore\n")
    assert (done.code, done.err) == (0, "")
    text, tokens = done.out.splitlines()
    assert text == "Hello"
    assert json.loads(tokens) == {
        "token": 72,
        "logprob": -72 / 256,
        "finish_reason": "length",
        "top_logprobs": {"72": -72 / 256, "71": -71 / 256},
    }
    assert [request.raw for request in llm.requests] == [True, False]
    assert llm.requests[0].sampling == Sampling(temperature=0.5, max_tokens=32)


async def test_a_model_without_raw_text_gets_a_turn_and_failures_are_told() -> None:
    async with open_gateway(llm=CountingLlm()) as it:
        await until_listed(it.http)
        done = await run(it.gateway.url, "3\n[1]\n")
        unknown = await run(it.gateway.url, "3\n", model="nobody")
    assert (done.code, done.out) == (1, "0 1 2 \n")
    assert done.err.startswith("tg-lmtp: the model can't do this: end_token, prompt_ids")
    assert (unknown.code, unknown.err) == (1, "tg-lmtp: there is no model 'nobody'; there are: counting\n")


async def test_parameters_that_a_line_does_not_have_are_refused() -> None:
    llm = TokenLlm()
    async with open_gateway(llm=llm) as it:
        await until_listed(it.http)
        other = await run(it.gateway.url, "Hello model=other\n")
        mistyped = await run(it.gateway.url, "Hello temprature=1\n")
    assert (other.code, other.err) == (1, "tg-lmtp: model is no parameter of a line: it is the command's argument\n")
    assert (mistyped.code, "unknown field `temprature`" in mistyped.err) == (1, True)
    assert llm.requests == []


async def test_a_gateway_that_says_nothing_ends_in_our_timeout() -> None:
    async with SilentServer.running() as silent:
        with pytest.raises(Timeout, match="no answer came"):
            async with open_lmtp(silent.url, 0.05, "counting"):
                pass
    async with unreading_socket() as url, open_lmtp(url, 0.05, "counting") as socket:
        with pytest.raises(Timeout, match="no answer came"):
            await anext(socket.generate({"prompt": "x" * 15 * 1024 * 1024}))


async def test_a_stream_that_is_left_stops_the_model() -> None:
    llm = TokenLlm()
    llm.step = asyncio.Semaphore(2)
    async with open_gateway(llm=llm) as it:
        await until_listed(it.http)
        async with open_lmtp(it.gateway.url, 10, "counting") as socket:
            async with aclosing(socket.generate({"prompt": [7] * 100, "max_tokens": 100})) as items:
                assert (await anext(items)).token == 7
            await asyncio.wait_for(llm.stopped.wait(), 10)
            assert llm.generated <= 2
            llm.step = None
            async with aclosing(socket.generate({"prompt": [8]})) as items:
                assert [item.token async for item in items] == [8, END]


class _Peer:
    """A gateway's end of LMTP that has its own way with connections: one token, the number of the connection.

    Args:
        pings: whether it begins with a ping, and says nothing until that is answered; else it leaves after a token.
    """

    def __init__(self, *, pings: bool) -> None:
        self.pings = pings
        self.connections = 0
        self.ponged = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(autoping=not self.pings)
        await socket.prepare(request)
        self.connections += 1
        if self.pings:
            await socket.ping()
            assert (await socket.receive()).type is WSMsgType.PONG
            self.ponged.set()
        async for message in socket:
            kind, _, fields = message.data.partition(" ")
            item = {"stream_id": json.loads(fields)["stream_id"]}
            if kind == "GENERATE":
                item |= {"token": self.connections, "finish_reason": "stop"}
            await socket.send_str(f"TOKEN [{json.dumps(item)}]")
            if kind == "GENERATE":
                break
        # It ends when the other end has answered, and so knows of it.
        await socket.close()
        self.left.set()
        return socket

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """The URL, while the block runs."""
        async with serve_routes({"GET /lmtp": self.serve}, "/") as url:
            yield url


async def test_pings_are_answered_while_nobody_asks() -> None:
    """Else a gateway would take one who thinks about the next line for gone."""
    peer = _Peer(pings=True)
    async with peer.listening() as url, open_lmtp(url, 10, "m"):
        await asyncio.wait_for(peer.ponged.wait(), 10)


async def test_a_connection_that_was_lost_between_two_lines_is_made_anew() -> None:
    peer = _Peer(pings=False)
    async with peer.listening() as url, started("tg-lmtp", "m", "-u", url) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for connection in (1, 2):
            process.stdin.write(b"[1]\n")
            assert json.loads(await process.stdout.readline())["token"] == connection
            await peer.left.wait()
            peer.left.clear()
        process.stdin.write_eof()
        assert await process.wait() == 0


async def test_a_lost_connection_says_so() -> None:
    peer = _Peer(pings=False)
    async with peer.listening() as url, open_lmtp(url, 10, "m") as socket:
        async with aclosing(socket.generate({"prompt": [1]})) as items:
            assert [item.token async for item in items] == [1]
        await peer.left.wait()
        assert socket.lost
        with pytest.raises(Unavailable):
            await anext(socket.generate({"prompt": [1]}))
