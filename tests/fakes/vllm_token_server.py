"""vLLM's tokenizer routes and completions on a loopback socket, after its reference ("Tokenizer", "Completions API").

Its tokenizer has a token for each character, number 1000 and above, and begins each prompt with token 1.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

import msgspec
from aiohttp import web

from tests.fakes.serve_routes import serve_routes
from tests.fakes.strict import Strict

BEGIN = 1
FIRST = 1000


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


class StructuredOutputs(Strict, frozen=True):
    regex: str | None = None
    choice: tuple[str, ...] = ()


class StreamOptions(Strict, frozen=True):
    include_usage: bool


class CompletionBody(Strict, frozen=True, kw_only=True):
    model: str
    prompt: str | tuple[int, ...]
    max_tokens: int | None = 16
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    return_token_ids: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: StructuredOutputs | None = None
    cache_salt: str | None = None


class VllmTokenServer:
    """Every text is "Hi é" to it, with a log-probability of -0.5 for each token, and -1.5 for the next character's.

    Attributes:
        url: "http://127.0.0.1:PORT".
        bodies: of all requests, checked.
        garbage: whether answers are none.
        failing: whether a stream breaks off with an error event.
    """

    answer: ClassVar[str] = "Hi é"

    model: ClassVar[str] = "fake-model"

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[Any] = []
        self.garbage = self.failing = False

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Self]:
        """Serve on a free port of the loopback interface."""
        server = cls()
        routes = {
            "POST /tokenize": server._tokenize,
            "POST /detokenize": server._detokenize,
            "POST /v1/completions": server._complete,
        }
        async with serve_routes(routes) as server.url:
            yield server

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

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            body = msgspec.json.decode(await request.read(), type=CompletionBody)
        except msgspec.ValidationError as error:
            return _failed(str(error))
        self.bodies.append(body)
        if body.stream and body.prompt_logprobs is not None:
            return _failed("`prompt_logprobs` are not available when `stream=True`.")
        if not body.stream:
            return web.json_response([] if self.garbage else self._whole(body))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in self._events(body):
            await response.write(b"data: " + msgspec.json.encode(event) + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _whole(self, body: CompletionBody) -> dict[str, Any]:
        ids = _prompt_ids(body)
        ranked = [None, *[_ranked(token, body.prompt_logprobs or 0) for token in ids[1:]]]
        choice = {"index": 0, "text": "H", "logprobs": None, "finish_reason": "length", "stop_reason": None}
        asked: dict[str, Any] = {"prompt_token_ids": ids if body.return_token_ids else None}
        asked |= {"prompt_logprobs": ranked if body.prompt_logprobs is not None else None}
        usage = {"prompt_tokens": len(ids), "total_tokens": len(ids) + 1, "completion_tokens": 1}
        return {**self._head(), "choices": [choice | asked], "usage": usage}

    def _events(self, body: CompletionBody) -> list[dict[str, Any]]:
        ids = [FIRST + ord(character) for character in self.answer][: body.max_tokens]
        stopped = next((token for token in ids if token in body.stop_token_ids), None)
        ids = ids[: ids.index(stopped)] if stopped is not None else ids
        reason = "length" if body.max_tokens == len(ids) else "stop"
        events = []
        for index in range(body.n):
            for number, token in enumerate(ids):
                choice = {"index": index, "text": chr(token - FIRST), "logprobs": _logprobs(token, body)}
                choice |= {"finish_reason": None, "stop_reason": None}
                choice |= {"token_ids": [token]} if body.return_token_ids else {}
                # The ids of the prompt come with the first one.
                choice |= {"prompt_token_ids": _prompt_ids(body)} if body.return_token_ids and not number else {}
                events.append({**self._head(), "choices": [choice]})
            end = {"index": index, "text": "", "logprobs": None, "finish_reason": reason, "stop_reason": stopped}
            events.append({**self._head(), "choices": [end]})
        if self.failing:
            fault = {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}
            return [*events[:1], {"error": fault}]
        told, counted = len(ids) * body.n, len(_prompt_ids(body))
        usage = {"prompt_tokens": counted, "total_tokens": counted + told, "completion_tokens": told}
        return [*events, {**self._head(), "choices": [], "usage": usage}]

    def _head(self) -> dict[str, Any]:
        return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": self.model}


def _prompt_ids(body: CompletionBody) -> list[int]:
    if isinstance(body.prompt, str):
        return [BEGIN, *[FIRST + ord(character) for character in body.prompt]]
    return list(body.prompt)


def _logprobs(token: int, body: CompletionBody) -> dict[str, Any] | None:
    if body.logprobs is None:
        return None
    text = chr(token - FIRST)
    # The chosen one is always there, and as many others as were asked for.
    top = {text: -0.5} | {chr(token - FIRST + n): -0.5 - n for n in range(1, body.logprobs + 1)}
    return {"tokens": [text], "token_logprobs": [-0.5], "top_logprobs": [top], "text_offset": [0]}


def _ranked(token: int, most: int) -> dict[str, Any]:
    def told(number: int) -> dict[str, Any]:
        return {"logprob": -0.5 - number, "rank": number + 1, "decoded_token": chr(token + number - FIRST)}

    return {str(token + number): told(number) for number in range(max(most, 1))}


def _failed(message: str) -> web.Response:
    fault = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    return web.json_response({"error": fault}, status=400)
