"""An OpenAI-compatible server that keeps its own books: for each call, what it was asked and what it has sent.

A prompt says which request it is of and how it is answered: `id=a7 tokens=12 gap=0.02 fault=cut`. A token is a word or
four bytes of a prompt. What is refused costs nothing; all else costs its prompt, and each token that was sent.
"""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from tests.fakes.openai_transcript import done, event, finish_event, first_event, refusal, usage_event, whole
from tests.fakes.serve_routes import serve_routes

MODEL = "billing"
PLAN = re.compile(r"id=(\w+) tokens=(\d+) gap=([\d.]+) fault=(\w+)")
WORDS = ("the", "quick", "brown", "fox", "jumps", "home", "with", "three", "dogs", "and", "one", "cat")
THOUGHT = ("Thought: ", "Final Answer: ")
MESSAGE_TOKENS = 3


@dataclass
class Billed:
    """One call: the tokens of its prompt, and those of its answer so far. `told`: whether the client got its counts.

    `began_at` is in seconds since the epoch.
    """

    prompt: int = 0
    sent: int = 0
    told: bool = False
    refused: bool = False
    over: bool = False
    began_at: float = field(default_factory=time.time)


class BillingOpenAi:
    """Its books are `calls`, by the request's id."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: defaultdict[str, list[Billed]] = defaultdict(list)

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator["BillingOpenAi"]:
        """Serve on a free loopback port."""
        server = cls()
        async with serve_routes({"POST /v1/chat/completions": server._answer}, "/v1") as server.url:
            yield server

    @property
    def running(self) -> int:
        """Calls that go on."""
        return sum(not call.over for calls in self.calls.values() for call in calls)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read())
        texts = [_text(message) for message in body["messages"]]
        plan = PLAN.search("\n".join(texts))
        assert plan is not None, texts
        name, tokens, gap, fault = plan[1], int(plan[2]), float(plan[3]), plan[4]
        call = Billed()
        self.calls[name].append(call)
        try:
            if fault == "refuse" and len(self.calls[name]) == 1:
                call.refused = True
                return web.Response(status=429, headers={"Retry-After": "0"}, body=refusal("slow down", "rate_limit"))
            call.prompt = sum(MESSAGE_TOKENS + -(-len(text.encode()) // 4) for text in texts)
            if not body.get("stream"):
                await asyncio.sleep(gap * tokens)
                call.sent, call.told = tokens, True
                text = " ".join(WORDS[number % len(WORDS)] for number in range(tokens))
                return web.json_response(body=whole(MODEL, text, "stop", (call.prompt, call.sent)))
            return await self._stream(request, call, tokens, gap, fault)
        except ConnectionError:
            return web.Response()
        finally:
            call.over = True

    async def _stream(
        self, request: web.Request, call: Billed, tokens: int, gap: float, fault: str
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(first_event(MODEL))
        for number in range(tokens):
            await asyncio.sleep(gap)
            if fault == "cut" and number > tokens // 2:
                assert request.transport is not None
                request.transport.close()
                return response
            word = WORDS[number % len(WORDS)] + " "
            if fault == "thought" and number < len(THOUGHT):
                word = THOUGHT[number] if number else THOUGHT[0] + "so\n"
            await response.write(event(MODEL, {"content": word}))
            call.sent += 1
        call.told = True
        await response.write(finish_event(MODEL, "stop") + usage_event(MODEL, call.prompt, call.sent) + done())
        return response


def _text(message: dict[str, object]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    return "".join(part.get("text", "") for part in content)
