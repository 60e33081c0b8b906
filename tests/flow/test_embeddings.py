"""Embeddings through OpenAI's own SDK; scores, rankings and token ids as vLLM's and Jina's clients ask for them."""

import asyncio
import base64
import hashlib
import math
import struct
from typing import Any

import openai
import pytest
from typing_extensions import override

from tests.fakes.byte_llm import CONTEXT_TOKENS, ByteLlm, count_letters
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened, open_gateway
from tests.flow.openai_sdk import MODEL, blocking_sdk, open_sdk
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import Embeddings
from tg_schema import TextCompletionRequest

TEXTS = ["ab", "cc", "aabc"]
FORMATS: list[dict[str, Any]] = [{}, {"encoding_format": "float"}]
KEY = ApiKey(name="k", sha256=hashlib.sha256(b"right").hexdigest())
LOCKED = GatewayConfig(port=0, drain=0.05, keys=(KEY,))


async def post(it: Opened, path: str, **body: Any) -> dict[str, Any]:
    async with it.http.post(path, json=body) as response:
        told: dict[str, Any] = await response.json()
        assert response.status == 200, told
        return told


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("ab", ["ab"]),
        (TEXTS, TEXTS),
        ([97, 98], ["ab"]),
        ([[97, 98], [99, 99]], ["ab", "cc"]),
        ([], None),
    ],
)
async def test_the_sdk_gets_a_vector_for_each_input(given: Any, meant: list[str] | None) -> None:
    """It asks for base64 by itself, and decodes it."""
    async with open_sdk(llm=ByteLlm()) as (_, client):
        if meant is None:
            with pytest.raises(openai.BadRequestError, match="input must not be empty"):
                await client.embeddings.create(model=MODEL, input=given)
            return
        for options in FORMATS:
            made = await client.embeddings.create(model=MODEL, input=given, **options)
            assert (made.object, made.model) == ("list", MODEL)
            assert [each.index for each in made.data] == [*range(len(meant))]
            assert [tuple(each.embedding) for each in made.data] == [count_letters(text) for text in meant]
            assert (made.usage.prompt_tokens, made.usage.total_tokens) == (sum(map(len, meant)),) * 2


async def test_the_blocking_client() -> None:
    async with open_sdk(llm=ByteLlm()) as (it, _):

        def ask() -> list[float]:
            with blocking_sdk(it.gateway) as client:
                return client.embeddings.create(model=MODEL, input="abc").data[0].embedding

        assert await asyncio.to_thread(ask) == [1.0, 1.0, 1.0]


async def test_both_encodings_on_the_wire() -> None:
    async with open_sdk(llm=ByteLlm()) as (it, _):
        told = await post(it, "v1/embeddings", model=MODEL, input="aab", dimensions=None, user="u")
        assert told == {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [2.0, 1.0, 0.0]}],
            "model": MODEL,
            "usage": {"prompt_tokens": 3, "total_tokens": 3},
        }
        told = await post(it, "v1/embeddings", model=MODEL, input="aab", encoding_format="base64")
        assert struct.unpack("<3f", base64.b64decode(told["data"][0]["embedding"])) == (2.0, 1.0, 0.0)


async def test_a_long_list_is_shared_and_stays_in_order() -> None:
    llm = ByteLlm()
    async with open_sdk(llm=llm) as (_, client):
        texts = ["a" * (number % 7) + "c" for number in range(1000)]
        made = await client.embeddings.create(model=MODEL, input=texts)
        assert [tuple(each.embedding) for each in made.data] == [count_letters(text) for text in texts]
        assert [each.index for each in made.data] == list(range(1000))
        assert 1 < len(llm.requests) < 100
        both: Any = ["a", [98], [99], "a"]
        mixed = await client.embeddings.create(model=MODEL, input=both)
        assert [each.embedding.index(1.0) for each in mixed.data] == [0, 1, 2, 0]


async def test_scores_are_cosines() -> None:
    async with open_sdk(llm=ByteLlm()) as (it, _):
        for path in ("score", "v1/score"):
            told = await post(it, path, model=MODEL, text_1="a", text_2=["aa", "b", "ab", "x"])
            assert (told["object"], told["model"], told["id"][:6]) == ("list", MODEL, "score-")
            assert [(each["index"], each["object"]) for each in told["data"]] == [(n, "score") for n in range(4)]
            scores = [each["score"] for each in told["data"]]
            assert scores == pytest.approx([1.0, 0.0, math.sqrt(0.5), 0.0])
            assert told["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
        told = await post(it, "score", text_1=["a", "b"], text_2=["b", "b"])
        assert [each["score"] for each in told["data"]] == pytest.approx([0.0, 1.0])


async def test_documents_are_ranked() -> None:
    llm = ByteLlm()
    async with open_sdk(llm=llm) as (it, _):
        documents: list[Any] = ["b", {"text": "a"}, "ab"]
        for path in ("rerank", "v1/rerank", "v2/rerank"):
            told = await post(it, path, model=MODEL, query="a", documents=documents)
            assert [(each["index"], each["document"]["text"]) for each in told["results"]] == [
                (1, "a"),
                (2, "ab"),
                (0, "b"),
            ]
            assert told["results"][1]["relevance_score"] == pytest.approx(math.sqrt(0.5))
        assert [request.purpose for request in llm.requests[:2]] == ["query", "document"]
        told = await post(it, "rerank", query="a", documents=documents, top_n=1, return_documents=False)
        assert [set(each) for each in told["results"]] == [{"index", "relevance_score"}]


async def test_a_model_without_vectors_is_refused_by_name_before_it_is_queued() -> None:
    llm = CountingLlm()
    async with open_sdk(llm=llm) as (it, client):
        with pytest.raises(openai.BadRequestError, match="the model can't do this: embed;"):
            await client.embeddings.create(model=MODEL, input="a")
        for path, body in (("score", {"text_1": "a", "text_2": "b"}), ("rerank", {"query": "a", "documents": ["b"]})):
            async with it.http.post(path, json=body) as response:
                assert (response.status, "embed" in (await response.json())["error"]["message"]) == (400, True)
        assert llm.requests == []


class Sparing(ByteLlm):
    """Leaves out a vector."""

    @override
    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        return Embeddings((await super().embed(request)).vectors[:-1])


async def test_a_missing_vector_is_an_error() -> None:
    async with open_sdk(llm=Sparing()) as (_, client):
        with pytest.raises(openai.InternalServerError, match="one vector for each"):
            await client.embeddings.create(model=MODEL, input=["a", "b"])


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("v1/embeddings", {"model": MODEL}, 400, "input"),
    ("v1/embeddings", {"input": "a"}, 400, "model"),
    ("v1/embeddings", {"model": "gpt-9", "input": "a"}, 404, "model"),
    ("v1/embeddings", {"model": MODEL, "input": ""}, 400, "input"),
    ("v1/embeddings", {"model": MODEL, "input": [[]]}, 400, "input"),
    ("v1/embeddings", {"model": MODEL, "input": [1, "a"]}, 400, "input"),
    ("v1/embeddings", {"model": MODEL, "input": {"a": 1}}, 400, "input"),
    ("v1/embeddings", {"model": MODEL, "input": ["a"] * 2049}, 400, "input"),
    ("v1/embeddings", {"model": MODEL, "input": "a", "dimensions": 8}, 400, ""),
    ("v1/embeddings", {"model": MODEL, "input": "a", "dimensions": 0}, 400, "dimensions"),
    ("v1/embeddings", {"model": MODEL, "input": "a", "encoding_format": "int8"}, 400, "encoding_format"),
    ("v1/embeddings", {"model": MODEL, "input": "a", "truncate_prompt_tokens": 5}, 400, "truncate_prompt_tokens"),
    ("v1/embeddings", {"model": MODEL, "input": "a", "truncate_prompt_tokens": -1}, 400, ""),
    ("score", {"text_1": "a"}, 400, "text_2"),
    ("score", {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]}, 400, "text_1"),
    ("score", {"text_1": "a", "text_2": []}, 400, "text_2"),
    ("score", {"text_1": {"content": []}, "text_2": "a"}, 400, "text_1"),
    ("score", {"model": "gpt-9", "text_1": "a", "text_2": "a"}, 404, "model"),
    ("rerank", {"query": "a"}, 400, "documents"),
    ("rerank", {"query": "", "documents": ["a"]}, 400, "query"),
    ("rerank", {"query": "a", "documents": [""]}, 400, "documents"),
    ("rerank", {"query": "a", "documents": [{"image": "x"}]}, 400, "documents[0]"),
    ("rerank", {"query": "a", "documents": ["a"], "top_n": -1}, 400, "top_n"),
    ("rerank", {"query": "a", "documents": ["a"], "max_chunks_per_doc": 2}, 400, "max_chunks_per_doc"),
]


async def test_bad_input_is_refused_in_the_shape_of_the_sdk() -> None:
    llm = ByteLlm()
    async with open_sdk(llm=llm) as (it, _):
        for path, body, status, param in REFUSED:
            async with it.http.post(path, json=body) as response:
                told = (await response.json())["error"]
                assert (response.status, told["param"] or "") == (status, param), (body, told)
                assert set(told) == {"message", "type", "param", "code"}
        for path in ("v1/embeddings", "score", "rerank"):
            for data in (b"", b"[]", b"\xff", b"null"):
                async with it.http.post(path, data=data) as response:
                    assert (response.status, "error" in await response.json()) == (400, True)
        assert llm.requests == []


async def test_a_wrong_key_is_refused_in_the_shape_of_the_sdk() -> None:
    async with open_sdk(llm=ByteLlm(), config=LOCKED) as (it, _):
        for path in ("v1/embeddings", "score", "rerank", "tokenize", "detokenize"):
            async with it.http.post(path, json={}, headers={"Authorization": "Bearer wrong"}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (401, "invalid_api_key")


QUESTION = [{"role": "user", "content": "ab"}]


async def asked_of(it: Opened, path: str, body: Any) -> tuple[int, Any]:
    async with it.http.post(path, json=body) as response:
        return response.status, await response.json()


async def test_text_and_conversations_become_ids_and_ids_become_text() -> None:
    llm = ByteLlm()
    async with open_gateway(llm=llm, listed=True) as it:
        told = {"count": 3, "max_model_len": CONTEXT_TOKENS, "tokens": [1, 97, 98], "token_strs": None}
        assert await asked_of(it, "tokenize", {"prompt": "ab"}) == (200, told)
        bare = {"count": 2, "max_model_len": CONTEXT_TOKENS, "tokens": [97, 98], "token_strs": ["a", "b"]}
        asked = {"model": llm.model, "prompt": "ab", "add_special_tokens": False, "return_token_strs": True}
        assert await asked_of(it, "tokenize", asked) == (200, bare)
        assert await asked_of(it, "tokenize", {"messages": QUESTION, "add_generation_prompt": True}) == (200, told)
        assert [(each.raw, each.texts, each.prompt) for each in llm.requests] == [
            (True, (), "ab"),
            (False, ("ab",), None),
            (False, (), "ab"),
        ]
        assert await asked_of(it, "detokenize", {"tokens": [97, 195, 169]}) == (200, {"prompt": "aé"})


async def test_unknown_fields_are_listed() -> None:
    async with open_gateway(llm=ByteLlm(), listed=True) as it:
        for body, ignored in (
            ({"prompt": "a", "unheard_of": 1}, "unheard_of"),
            ({"messages": QUESTION, "unheard_of": 1, "user": "u"}, "unheard_of"),
        ):
            async with it.http.post("tokenize", json=body) as response:
                assert response.headers["X-Tokengrid-Ignored"] == ignored


REFUSED_TOKENS: list[tuple[str, dict[str, Any], int, str]] = [
    ("tokenize", {}, 400, "prompt"),
    ("tokenize", {"prompt": "a", "messages": QUESTION}, 400, "prompt"),
    ("tokenize", {"prompt": ""}, 400, "prompt"),
    ("tokenize", {"prompt": ["a"]}, 400, "prompt"),
    ("tokenize", {"prompt": "a", "model": "gpt-9"}, 404, "model"),
    ("tokenize", {"messages": []}, 400, "messages"),
    ("tokenize", {"messages": [1]}, 400, "messages[0]"),
    ("tokenize", {"messages": QUESTION, "add_special_tokens": True}, 400, "add_special_tokens"),
    ("tokenize", {"messages": QUESTION, "add_generation_prompt": False}, 400, "add_generation_prompt"),
    ("tokenize", {"messages": QUESTION, "chat_template": "x"}, 400, "chat_template"),
    ("tokenize", {"messages": QUESTION, "continue_final_message": True}, 400, "continue_final_message"),
    ("detokenize", {}, 400, "tokens"),
    ("detokenize", {"tokens": []}, 400, "tokens"),
    ("detokenize", {"tokens": [-1]}, 400, "tokens[0]"),
    ("detokenize", {"tokens": "ab"}, 400, "tokens"),
]


async def test_bad_questions_about_tokens_are_refused_in_the_shape_of_the_sdk() -> None:
    llm = ByteLlm()
    async with open_gateway(llm=llm, listed=True) as it:
        for path, body, status, param in REFUSED_TOKENS:
            answered, told = await asked_of(it, path, body)
            assert (answered, told["error"]["param"] or "") == (status, param), (body, told)
        assert llm.requests == []


async def test_a_model_that_tells_no_ids_is_refused_by_name() -> None:
    async with open_gateway(llm=CountingLlm(), listed=True) as it:
        for path, body in (("tokenize", {"messages": QUESTION}), ("detokenize", {"tokens": [1]})):
            status, told = await asked_of(it, path, body)
            assert (status, told["error"]["message"]) == (
                400,
                f"the model can't do this: {path}; leave it out, or ask another model",
            )
