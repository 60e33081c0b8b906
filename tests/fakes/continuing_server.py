"""A chat API that goes on with the assistant's message, as vLLM, DeepSeek and Mistral do, each by its own fields."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from aiohttp import web

from tests.fakes.serve_routes import serve_routes
from tests.until import until

Dialect = Literal["vllm", "deepseek", "mistral"]
WIRES: dict[Dialect, dict[str, Any]] = {
    "vllm": {"continue_final_message": True, "add_generation_prompt": False},
    "deepseek": {},
    "mistral": {},
}
"""The further fields of a body that has the beginning of an answer."""


class Reader:
    """Where the reader of an answer is: a model waits for it before each piece, so that each is a record of its own.

    Attributes:
        read: characters that it has.
    """

    def __init__(self) -> None:
        self.read = 0

    async def reach(self, characters: int) -> None:
        """Wait until it has so many."""
        await until(lambda: self.read >= characters)


class ContinuingServer:
    """Answers every chat with the same words.

    Args:
        dialect: whose fields it takes. Others it refuses.
        words: the answer, in the pieces that it is sent in.
        reader: who reads it.

    Attributes:
        url: of the server, without a path.
        bodies: all requests.
    """

    def __init__(self, dialect: Dialect, words: tuple[str, ...], reader: Reader) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self._dialect: Dialect = dialect
        self._words = words
        self._reader = reader

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ContinuingServer"]:
        """Serves while the block runs."""
        async with serve_routes({"POST /{path:.*}/chat/completions": self._answer}) as self.url:
            yield self

    def _read_begun(self, body: dict[str, Any]) -> str:
        """The beginning of the answer; "" = the whole one is asked for.

        Raises:
            ValueError: the fields are not this server's.
        """
        last = body["messages"][-1]
        more = WIRES["vllm"] if last["role"] == "assistant" and self._dialect == "vllm" else {}
        if {name: body[name] for name in WIRES["vllm"] if name in body} != more:
            raise ValueError("unknown fields")
        if last["role"] == "user":
            return ""
        mark = {} if self._dialect == "vllm" else {"prefix": True}
        if last != {"role": "assistant", "content": last["content"], **mark}:
            raise ValueError("the last message must be the user's")
        return str(last["content"])

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        try:
            begun = self._read_begun(body)
        except ValueError as error:
            return web.json_response({"error": {"message": str(error), "type": "invalid_request_error"}}, status=400)
        text = "".join(self._words)
        if not text.startswith(begun):
            return web.json_response({"error": {"message": "not my words"}}, status=400)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if self._dialect == "mistral" and begun:
            await response.write(_event({"content": begun}))
        sent, rest = len(begun), self._rest(len(begun))
        for piece in rest:
            await self._reader.reach(sent)
            await response.write(_event({"content": piece}))
            sent += len(piece)
        usage = {"prompt_tokens": 100 + len(begun), "completion_tokens": len(rest), "total_tokens": 1}
        await response.write(_event({}, "stop"))
        await response.write(_event(None, usage=usage) + b"data: [DONE]\n\n")
        return response

    def _rest(self, start: int) -> list[str]:
        rest = []
        for word in self._words:
            rest += [word[start:]] if len(word) > start else []
            start = max(start - len(word), 0)
        return rest


def _event(delta: dict[str, Any] | None, reason: str | None = None, usage: dict[str, Any] | None = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": reason}]
    said = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return b"data: " + json.dumps(said | ({"usage": usage} if usage else {})).encode() + b"\n\n"
