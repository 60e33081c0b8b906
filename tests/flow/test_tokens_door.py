"""Token ids as vLLM's clients ask for them."""

from typing import Any

from tests.fakes.byte_llm import CONTEXT_TOKENS, ByteLlm
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import Opened, open_gateway, until_listed

QUESTION = [{"role": "user", "content": "ab"}]


async def post(it: Opened, path: str, body: Any) -> tuple[int, Any]:
    async with it.http.post(path, json=body) as response:
        return response.status, await response.json()


async def test_text_and_conversations_become_ids_and_ids_become_text() -> None:
    llm = ByteLlm()
    async with open_gateway(llm=llm) as it:
        await until_listed(it.http)
        told = {"count": 3, "max_model_len": CONTEXT_TOKENS, "tokens": [1, 97, 98], "token_strs": None}
        assert await post(it, "tokenize", {"prompt": "ab"}) == (200, told)
        bare = {"count": 2, "max_model_len": CONTEXT_TOKENS, "tokens": [97, 98], "token_strs": ["a", "b"]}
        asked = {"model": llm.model, "prompt": "ab", "add_special_tokens": False, "return_token_strs": True}
        assert await post(it, "tokenize", asked) == (200, bare)
        assert await post(it, "tokenize", {"messages": QUESTION, "add_generation_prompt": True}) == (200, told)
        assert [(each.raw, each.texts, each.prompt) for each in llm.requests] == [
            (True, (), "ab"),
            (False, ("ab",), None),
            (False, (), "ab"),
        ]
        assert await post(it, "detokenize", {"tokens": [97, 195, 169]}) == (200, {"prompt": "aé"})


async def test_unknown_fields_are_listed() -> None:
    async with open_gateway(llm=ByteLlm()) as it:
        await until_listed(it.http)
        for body, ignored in (
            ({"prompt": "a", "unheard_of": 1}, "unheard_of"),
            ({"messages": QUESTION, "unheard_of": 1, "user": "u"}, "unheard_of"),
        ):
            async with it.http.post("tokenize", json=body) as response:
                assert response.headers["X-Tokengrid-Ignored"] == ignored


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
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


async def test_bad_input_is_refused_in_the_shape_of_the_sdk() -> None:
    llm = ByteLlm()
    async with open_gateway(llm=llm) as it:
        await until_listed(it.http)
        for path, body, status, param in REFUSED:
            answered, told = await post(it, path, body)
            assert (answered, told["error"]["param"] or "") == (status, param), (body, told)
        assert llm.requests == []


async def test_a_model_that_tells_no_ids_is_refused_by_name() -> None:
    async with open_gateway(llm=CountingLlm()) as it:
        await until_listed(it.http)
        for path, body in (("tokenize", {"messages": QUESTION}), ("detokenize", {"tokens": [1]})):
            status, told = await post(it, path, body)
            assert (status, told["error"]["message"]) == (
                400,
                f"the model can't do this: {path}; leave it out, or ask another model",
            )
