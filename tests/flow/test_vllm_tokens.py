"""Token ids of a vLLM server, through the SDK, from a server that speaks its routes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.vllm_token_server import BEGIN, FIRST, DetokenizeBody, TokenizeBody, VllmTokenServer
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_schema import Message, TextCompletionRequest, TextCompletionResponse, Tool
from tg_schema.errors import BadRequest, ProtocolError

MODEL = VllmTokenServer.model
IDS = (FIRST + ord("a"), FIRST + ord("é"))


@asynccontextmanager
async def opened(server: VllmTokenServer, path: str = "/v1") -> AsyncIterator[LlmService]:
    service = await open_provider("vllm", MODEL, {"base_url": server.url + path, "tries": 1})
    try:
        yield service
    finally:
        await service.aclose()


async def asked(service: LlmService, operation: str, **fields: Any) -> TextCompletionResponse:
    request = TextCompletionRequest(operation=operation, **fields)
    (answer,) = [record async for record in service.on_request(request)]
    return answer


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
async def test_ids_come_and_go(path: str) -> None:
    tool = Tool("f", "d", {"type": "object"})
    async with VllmTokenServer.running() as server, opened(server, path) as service:
        assert (await asked(service, "tokenize", texts=("a", "é"))).ids == IDS
        assert (await asked(service, "tokenize", raw=True, prompt="aé")).ids == (BEGIN, *IDS)
        assert (await asked(service, "count-tokens", messages=(Message("user", "aé"),), tools=(tool,))).in_token == 3
        assert (await asked(service, "count-tokens", prompt_ids=IDS)).in_token == 2
        assert (await asked(service, "detokenize", prompt_ids=IDS)).response == "aé"
        *texts, raw, turns, back = server.bodies
    assert texts == [TokenizeBody(MODEL, text, add_special_tokens=False) for text in ("a", "é")]
    assert raw == TokenizeBody(MODEL, "aé")
    assert (turns.messages, turns.tools[0]["function"]["name"]) == (({"role": "user", "content": "aé"},), "f")
    assert back == DetokenizeBody(MODEL, IDS)


async def test_what_vllm_does_not_tell_is_refused() -> None:
    async with VllmTokenServer.running() as server, opened(server) as service:
        with pytest.raises(BadRequest, match="can't do this: token_texts;"):
            await asked(service, "detokenize", prompt_ids=IDS, token_texts=True)
        with pytest.raises(BadRequest, match="at most 64"):
            await asked(service, "tokenize", texts=("a",) * 65)
        server.garbage = True
        with pytest.raises(ProtocolError, match="cannot be read"):
            await asked(service, "tokenize", texts=("a",))
