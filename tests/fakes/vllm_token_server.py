"""vLLM's tokenizer routes over a loopback socket, after its public reference ("Tokenizer API").

Its tokenizer has a token for each character, number 1000 and above, and begins each prompt with token 1.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

import msgspec
from aiohttp import web

BEGIN = 1
FIRST = 1000


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shape of the reference; a field that it does not have is refused."""


class TokenizeBody(Strict, frozen=True):
    model: str
    prompt: str | None = None
    messages: tuple[dict[str, Any], ...] = ()
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    tools: tuple[dict[str, Any], ...] = ()


class DetokenizeBody(Strict, frozen=True):
    model: str
    tokens: tuple[int, ...]


class VllmTokenServer:
    """Attributes:
    url: "http://127.0.0.1:PORT".
    bodies: of all requests, checked.
    garbage: whether answers are none.
    """

    model: ClassVar[str] = "fake-model"

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[Any] = []
        self.garbage = False

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """Serve on a free port of the loopback interface."""
        server = cls()
        app = web.Application()
        app.router.add_post("/tokenize", server._tokenize)
        app.router.add_post("/detokenize", server._detokenize)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield server
        finally:
            await runner.cleanup()

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=TokenizeBody)
        self.bodies.append(body)
        text = body.prompt or "".join(message["content"] for message in body.messages)
        ids = [*([BEGIN] if body.add_special_tokens else []), *[FIRST + ord(character) for character in text]]
        answer = {"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": None}
        return web.json_response([] if self.garbage else answer)

    async def _detokenize(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=DetokenizeBody)
        self.bodies.append(body)
        return web.json_response({"prompt": "".join(chr(token - FIRST) for token in body.tokens if token != BEGIN)})
