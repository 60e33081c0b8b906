"""A processor refuses a field by the record's name; each door says the name that its own clients sent."""

import json
from typing import Any

import pytest

from tests.doors.open_lmtp import MODEL, open_lmtp
from tests.fakes.refusing_llm import RefusingLlm
from tests.flow.open_gateway import open_gateway

BIAS = "sampling.logit_bias: this model's token ids are 0 to 9"
SCHEMA = "schema: a $ref points to nothing"
MIN = "sampling.min_tokens must not be above sampling.max_tokens"
LENGTH = "sampling.max_tokens must be at least 1"
OTHER = "the prompt: this model's token ids are 0 to 9"
STOP = "sampling.stop may have 2 texts"

CHAT = "/v1/chat/completions"


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def prompt(text: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": text, **more}


def items(text: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": text, **more}


def inputs(text: str, **more: Any) -> dict[str, Any]:
    return {"inputs": text, **more}


ROWS = (
    (CHAT, chat, BIAS, "logit_bias: this model's"),
    (CHAT, chat, MIN, "min_tokens must not be above max_tokens"),
    (CHAT, chat, SCHEMA, "response_format: a $ref"),
    (CHAT, chat, "sampling.logprobs must be from 0 to 20", "top_logprobs must be"),
    (CHAT, chat, "messages: this model knows turns", "messages: this model knows turns"),
    ("/mlc/v1/chat/completions", chat, SCHEMA, "response_format: a $ref"),
    ("/v1/completions", prompt, "sampling.stop_ids may have 2 ids", "stop_token_ids may have"),
    ("/v1/completions", prompt, "choice may have 2 texts", "structured_outputs.choice may have"),
    ("/v1/responses", items, LENGTH, "max_output_tokens must be at least 1"),
    ("/v1/responses", items, SCHEMA, "text.format.schema: a $ref"),
    ("/v1/messages", lambda text: chat(text, max_tokens=1), STOP, "stop_sequences may have"),
    ("/api/chat", lambda text: chat(text, stream=False), LENGTH, "options.num_predict must be"),
    ("/api/generate", lambda text: prompt(text, stream=False), SCHEMA, "format: a $ref"),
    ("/generate", inputs, LENGTH, "parameters.max_new_tokens must be"),
    ("/generate", inputs, "regex: it is too deep", "parameters.grammar.value: it is too deep"),
    ("/invocations", inputs, STOP, "parameters.stop_sequences may have"),
    ("/invocations", lambda text: {"inputs": [text, text]}, STOP, "parameters.stop_sequences may have"),
    ("/api/v1/text-completion", lambda text: {"prompt": text}, LENGTH, "sampling.max_tokens must be"),
)
"""A door, its body around a prompt, what the processor says, how the door's answer goes on behind its opening."""


async def test_each_door_names_its_own_field() -> None:
    async with open_gateway(llm=RefusingLlm()) as opened:
        for path, body, said, told in ROWS:
            async with opened.http.post(path, json=body(said)) as response:
                text = await response.text()
                assert f'"{told}' in text.replace("\\", ""), (path, said, text)
                if path.startswith("/v1/") and "messages" not in path:
                    error = json.loads(text)["error"]
                    assert (error["param"], error["code"]) == (told.split(":")[0].split(" m")[0], "invalid_value")
            # An error of none of its fields stays as it is, at every door.
            async with opened.http.post(path, json=body(OTHER)) as response:
                assert OTHER in await response.text(), path


@pytest.mark.parametrize(("path", "body"), [(CHAT, chat), ("/v1/responses", items)])
async def test_so_do_streams(path: str, body: Any) -> None:
    asked = body(BIAS, stream=True)
    async with open_gateway(llm=RefusingLlm()) as opened, opened.http.post(path, json=asked) as response:
        assert '"param":"logit_bias"' in await response.text()


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        (CHAT, chat("", stop_token_ids=[1], min_p=0.5), "min_p, stop_ids (stop_token_ids);"),
        ("/api/chat", chat("", options={"repeat_penalty": 2}), "repetition_penalty (options.repeat_penalty);"),
        ("/generate", inputs("x", parameters={"adapter_id": "a"}), "adapter (parameters.adapter_id);"),
        ("/invocations", inputs("x", parameters={"min_length": 2}), "min_tokens (parameters.min_length);"),
    ],
)
async def test_what_the_model_cannot_do_is_named_by_the_field_too(path: str, body: Any, told: str) -> None:
    async with open_gateway(llm=RefusingLlm()) as opened, opened.http.post(path, json=body) as response:
        assert f"the model can't do this: {told}" in await response.text()


async def test_so_do_sockets() -> None:
    async with open_lmtp(RefusingLlm()) as (opened, lmtp):
        await lmtp.generate(1, LENGTH, mode="text")
        [item] = await lmtp.stream(1)
        assert item["error"].startswith("max_tokens must be at least 1")
        async with opened.http.ws_connect("/v1/responses") as socket:
            await socket.send_json({"type": "response.create", **items(LENGTH)})
            assert '"param":"max_output_tokens"' in await socket.receive_str(timeout=10)
