"""A vLLM server: raw prompts, token ids, what it tells of its tokens, and what is scored by it."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from tests.fakes.vllm_token_server import (
    BEGIN,
    FIRST,
    DetokenizeBody,
    StreamOptions,
    StructuredOutputs,
    TokenizeBody,
    VllmTokenServer,
)
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse, Tool
from tg_schema.errors import BadRequest, ProtocolError, Unavailable

MODEL = VllmTokenServer.model
IDS = (FIRST + ord("a"), FIRST + ord("é"))


@asynccontextmanager
async def opened(server: VllmTokenServer, path: str = "/v1") -> AsyncIterator[LlmService]:
    async with aclosing(await open_provider("vllm", MODEL, {"base_url": server.url + path, "tries": 1})) as service:
        yield service


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


HI = tuple([FIRST + ord(character) for character in VllmTokenServer.answer])


async def streamed(
    service: LlmService, into: list[TextCompletionResponse] | None = None, **fields: Any
) -> list[TextCompletionResponse]:
    received = [] if into is None else into
    async for record in service.on_request(TextCompletionRequest(streaming=True, **fields)):
        received.append(record)
    return received


async def test_a_raw_prompt_is_completed_with_its_tokens() -> None:
    async with VllmTokenServer.running() as server, opened(server) as service:
        (*_, last) = records = await streamed(service, raw=True, prompt="aé", sampling=Sampling(logprobs=2))
        (body,) = server.bodies
    tokens = [token for record in records for token in record.tokens]
    assert "".join(record.response or "" for record in records) == "Hi é"
    assert [token.id for token in tokens] == list(HI)
    assert [token.text for token in tokens] == list("Hi é")
    assert [token.logprob for token in tokens] == [-0.5] * 4
    assert tokens[0].top == ((-1, -0.5), (-1, -1.5))
    assert tokens[0].top_texts == ("H", "I")
    assert (last.finish_reason, last.in_token, last.out_token) == ("stop", 3, 4)
    assert (body.prompt, body.max_tokens, body.stream) == ("aé", None, True)
    assert body.stream_options == StreamOptions(include_usage=True)
    assert (body.logprobs, body.return_token_ids) == (2, True)


async def test_ids_are_a_prompt_and_every_field_goes_with_them() -> None:
    sampling = Sampling(
        n=2, temperature=0.5, top_k=3, min_p=0.1, seed=7, max_tokens=3, min_tokens=1, stop=("x",), ignore_eos=True,
        stop_ids=(HI[1],), keep_stop=True, repetition_penalty=1.1, logit_bias={5: 1.0},
    )  # fmt: skip
    async with VllmTokenServer.running() as server, opened(server) as service:
        records = await streamed(service, prompt_ids=IDS, sampling=sampling, regex="H.*")
        (body,) = server.bodies
        echoed = await streamed(service, prompt_ids=IDS, sampling=Sampling(n=2), echo=True)
        scored = await streamed(service, prompt_ids=IDS, sampling=Sampling(n=2, prompt_logprobs=0), echo=True)
    texts = ["".join(r.response or "" for r in records if r.index == index) for index in range(2)]
    assert texts == ["H", "H"]
    assert "".join(record.response or "" for record in echoed if record.index == 1) == "aéHi é"
    first, second = (next(record for record in scored if record.index == index) for index in range(2))
    assert first.prompt_tokens == second.prompt_tokens != ()
    assert [record.stopped_by for record in records if record.finish_reason] == [HI[1], HI[1]]
    assert (body.prompt, body.n, body.temperature, body.top_k, body.min_p, body.seed) == (IDS, 2, 0.5, 3, 0.1, 7)
    assert (body.max_tokens, body.min_tokens, body.stop, body.ignore_eos) == (3, 1, ("x",), True)
    assert (body.stop_token_ids, body.include_stop_str_in_output) == ((HI[1],), True)
    assert (body.repetition_penalty, body.logit_bias) == (1.1, {"5": 1.0})
    assert body.structured_outputs == StructuredOutputs(regex="H.*")
    assert body.logprobs is None


async def test_given_tokens_are_scored() -> None:
    async with VllmTokenServer.running() as server, opened(server) as service:
        scored = await asked(
            service, "score", prompt_ids=(BEGIN, IDS[0]), scored=IDS, sampling=Sampling(logprobs=2, prompt_logprobs=0)
        )
        (body,) = server.bodies
        text = await asked(service, "score", raw=True, prompt="aé", scored=IDS[:1])
    assert (body.prompt, body.max_tokens, body.prompt_logprobs) == ((BEGIN, IDS[0], *IDS), 1, 2)
    assert [token.id for token in scored.tokens] == list(IDS)
    assert [token.text for token in scored.tokens] == ["a", "é"]
    assert scored.tokens[0].top == ((IDS[0], -0.5), (IDS[0] + 1, -1.5))
    assert scored.tokens[0].top_texts == ("a", "b")
    assert [(token.id, token.logprob, token.top) for token in scored.prompt_tokens] == [
        (BEGIN, None, ()),
        (IDS[0], -0.5, ()),
    ]
    assert scored.in_token == 4
    assert (text.in_token, text.tokens[0].logprob, text.prompt_tokens) == (4, -0.5, ())


async def test_the_tokens_of_a_prompt_come_before_its_answer() -> None:
    async with VllmTokenServer.running() as server, opened(server) as service:
        records = await streamed(service, raw=True, prompt="a", echo=True, sampling=Sampling(prompt_logprobs=1))
    assert [token.id for token in records[0].prompt_tokens] == [BEGIN, IDS[0]]
    assert records[0].prompt_tokens[1].top == ((IDS[0], -0.5),)
    assert "".join(record.response or "" for record in records) == "aHi é"
    assert not any(record.prompt_tokens for record in records[1:])


async def test_what_this_server_cannot_do_is_refused() -> None:
    async with VllmTokenServer.running() as server, opened(server) as service:
        with pytest.raises(BadRequest, match="echo needs raw"):
            await streamed(service, prompt="a", echo=True)
        with pytest.raises(BadRequest, match="logit_bias"):
            await asked(service, "score", prompt_ids=IDS, scored=IDS, sampling=Sampling(logit_bias={1: 1.0}))
        with pytest.raises(BadRequest, match="can't do this: suffix;"):
            await streamed(service, raw=True, prompt="a", suffix="b")
        assert server.bodies == []
        server.garbage = True
        with pytest.raises(ProtocolError, match="cannot be read"):
            await asked(service, "score", prompt_ids=IDS, scored=IDS)
        server.garbage, server.failing = False, True
        with pytest.raises(Unavailable):
            await streamed(service, raw=True, prompt="a")
