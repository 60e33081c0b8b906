"""Soak's far end: an OpenAI-compatible provider in its own process, that fails at random in every way that it knows.

    python -m bench.soak_provider --seed 1 --faults 0.1        prints its port on the first line

`GET /stats` tells how many requests came, how many are being answered now, and how often it failed in which way.
"""

import argparse
import asyncio
import json
import random
import secrets
from collections import Counter

from aiohttp import web

from bench.soak_text import Question

FAULTS = ("busy", "down", "html", "cut", "early", "stall", "garbage", "in-band", "silent")


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    """One chunk of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    body = {
        "id": "chatcmpl-soak",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "soak",
        "choices": [choice],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage(pieces: int) -> bytes:
    """The chunk that tells the tokens, and the end."""
    counts = {"prompt_tokens": 8, "completion_tokens": pieces, "total_tokens": pieces + 8}
    body = {"id": "chatcmpl-soak", "object": "chat.completion.chunk", "created": 1, "model": "soak", "choices": []}
    return b"data: " + json.dumps(body | {"usage": counts}).encode() + b"\n\ndata: [DONE]\n\n"


class SoakProvider:
    """Answers questions.

    Args:
        seed: of the faults.
        share: of the requests that fail.
    """

    def __init__(self, seed: int, share: float) -> None:
        self._random = random.Random(seed)
        self._share = share
        self._requests = 0
        self._active = 0
        self._faults: Counter[str] = Counter()

    def application(self) -> web.Application:
        """Its paths."""
        application = web.Application(client_max_size=8 * 1024 * 1024)
        application.add_routes([web.post("/v1/chat/completions", self._ask), web.get("/stats", self._stats)])
        return application

    async def _stats(self, request: web.Request) -> web.Response:
        return web.json_response({"requests": self._requests, "active": self._active, "faults": self._faults})

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        question = Question.of(await request.read())
        if question is None:
            return web.json_response({"error": {"message": "no question"}}, status=400)
        fault = self._random.choice(FAULTS) if self._random.random() < self._share else ""
        after = self._random.randrange(question.pieces)
        self._faults[fault or "none"] += 1
        self._requests += 1
        self._active += 1
        try:
            return self._refusal(fault) or await self._answer(request, question, fault, after)
        except ConnectionError:
            return web.Response()
        finally:
            self._active -= 1

    def _refusal(self, fault: str) -> web.Response | None:
        error = {"error": {"message": "the soak wants it", "type": "server_error", "code": None}}
        if fault == "busy":
            return web.json_response(error, status=429, headers={"Retry-After": "1"})
        if fault == "down":
            return web.json_response(error, status=500)
        if fault == "html":
            return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")
        return None

    async def _answer(self, request: web.Request, question: Question, fault: str, after: int) -> web.StreamResponse:
        if fault == "silent":
            await asyncio.sleep(60)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await response.write(event({"role": "assistant", "content": ""}))
        call = secrets.token_hex(4)
        for index in range(question.pieces):
            if fault and index == after:
                return await self._fail(request, response, fault)
            await response.write(event({"content": question.piece(call, index)}))
            if question.gap:
                await asyncio.sleep(question.gap / 1000)
        await response.write(event({}, "stop") + usage(question.pieces))
        return response

    async def _fail(self, request: web.Request, response: web.StreamResponse, fault: str) -> web.StreamResponse:
        if fault == "cut" and request.transport is not None:
            request.transport.abort()
        if fault == "stall":
            await asyncio.sleep(60)
        if fault == "garbage":
            await response.write(b"data: {\x00\xff]garbage\n\n")
        if fault == "in-band":
            await response.write(
                b'data: {"error":{"message":"the soak wants it","type":"server_error","code":null}}\n\n'
            )
        return response


async def serve(provider: SoakProvider) -> None:
    """Serve until killed."""
    runner = web.AppRunner(provider.application(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="OpenAI-compatible provider that fails at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=float, default=0.1, help="share of the requests")
    options = parser.parse_args()
    asyncio.run(serve(SoakProvider(options.seed, options.faults)))


if __name__ == "__main__":
    main()
