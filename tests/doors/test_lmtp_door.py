"""LMTP: what stands on the wire, both ways, as LMQL's client reads and writes it."""

import asyncio
import json
import struct
from base64 import b64encode
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.doors.open_lmtp import MODEL, Lmtp, open_lmtp
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.token_llm import END, TokenLlm
from tests.flow.open_gateway import CONFIG, ON_ANY_PORT, TEXTS, open_gateway, until_listed
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.server import Processor
from tg_gateway.app import Gateway
from tg_schema import Sampling


def item(number: int, stream: int, reason: str | None = None) -> dict[str, Any]:
    """As GENERATE tells it."""
    top = {str(number): -number / 256, str(number - 1): -(number - 1) / 256}
    return {
        "token": number,
        "stream_id": stream,
        "logprob": -number / 256,
        "finish_reason": reason,
        "top_logprobs": top,
    }


@pytest.mark.parametrize("path", ["/lmtp", "/"])
async def test_tokens_and_the_end_token_come(path: str) -> None:
    async with open_lmtp(path=path) as (it, client):
        await client.generate(1, [72, 105])
        assert await client.stream(1) == [item(72, 1), item(105, 1), item(END, 1, "stop")]
    (asked,) = it.llm.requests
    assert asked.sampling == Sampling(temperature=0.0, max_tokens=32, logprobs=1, end_token=True)
    assert (asked.prompt_ids, asked.prompt, asked.raw) == ((72, 105), None, False)


async def test_the_token_that_reaches_the_limit_is_the_last() -> None:
    async with open_lmtp() as (_, client):
        await client.generate(7, [72, 105, 33], max_tokens=2)
        assert await client.stream(7) == [item(72, 7), item(105, 7, "length")]


async def test_the_message_is_one_line_with_a_list() -> None:
    async with open_lmtp() as (_, client):
        await client.generate(1, [72], max_tokens=1, top_logprobs=0)
        assert await client.socket.receive_str(timeout=10) == (
            'TOKEN [{"token":72,"stream_id":1,"logprob":-0.28125,"finish_reason":"length",'
            '"top_logprobs":{"72":-0.28125}}]'
        )


async def test_every_parameter_arrives() -> None:
    fields: dict[str, Any] = {
        "temperature": 1.2,
        "max_tokens": 64,
        "top_logprobs": 3,
        "top_p": 0.9,
        "top_k": 40,
        "repetition_penalty": 1.1,
        "presence_penalty": -0.5,
        "frequency_penalty": 0.25,
        "length_penalty": 2.0,
        "seed": 5,
        "stop": [],
    }
    async with open_lmtp() as (it, client):
        await client.generate(1, [1], **fields, logit_bias={"1": 100, "2": -100}, chunk_size=16)
        assert (await client.stream(1))[-1]["finish_reason"] == "stop"
    expected = {name: value for name, value in fields.items() if name not in {"top_logprobs", "stop"}}
    assert it.llm.requests[0].sampling == Sampling(
        **expected, logprobs=3, logit_bias={1: 100.0, 2: -100.0}, end_token=True
    )


async def test_no_stream_waits_for_the_end_of_another() -> None:
    # LMQL's own server runs eight of one sampling at a time, each batch to its end.
    llm = TokenLlm()
    llm.step = asyncio.Semaphore(0)
    prompts = {stream: [stream + place for place in range(9)] for stream in range(1, 33)}
    async with open_lmtp(llm) as (_, client):
        for stream, prompt in prompts.items():
            await client.generate(stream, prompt, temperature=stream / 32)
        await until(lambda: len(llm.requests) == len(prompts))
        firsts: list[dict[str, Any]] = []
        release(llm, len(prompts))
        while len(firsts) < len(prompts):
            firsts += (await client.read())[1]
        assert {each["stream_id"]: each["token"] for each in firsts} == {stream: stream for stream in prompts}
        release(llm, 8 * len(prompts))
        answers = await client.streams(*prompts)
    assert {stream: [each["token"] for each in items] for stream, items in answers.items()} == {
        stream: [*prompt[1:], END] for stream, prompt in prompts.items()
    }


async def test_two_processors_share_the_streams_of_one_socket() -> None:
    # LMQL's own balancer ends every connection with an error on Python 3.11 and later.
    models = [TokenLlm(), TokenLlm()]
    for llm in models:
        llm.capacity = 1
        llm.step = asyncio.Semaphore(0)
    async with (
        open_lmtp(models[0]) as (it, client),
        Processor(it.bus, CONFIG.topics, models[1], TEXTS, models=(MODEL,), grace=0.05),
    ):
        # Each works on one, and may have another one waiting.
        for stream in range(1, 5):
            await client.generate(stream, [stream])
        for llm in models:
            await asyncio.wait_for(llm.started.wait(), 10)
        for llm in models:
            release(llm, 4)
        answers = await client.streams(*range(1, 5))
    assert [[each["token"] for each in answers[stream]] for stream in range(1, 5)] == [
        [stream, END] for stream in range(1, 5)
    ]


def release(llm: TokenLlm, tokens: int) -> None:
    """Let the model go on by so many tokens, shared among its streams in turn."""
    assert llm.step is not None
    for _ in range(tokens):
        llm.step.release()


async def test_tokens_that_are_ready_together_are_one_message() -> None:
    async with open_lmtp(TokenLlm()) as (_, client):
        await client.send("SCORE", model=MODEL, prompt=[1], scored=[9, 8, 7], stream_id=3)
        kind, items = await client.read()
        assert (kind, [each["token"] for each in items]) == ("TOKEN", [9, 8, 7])


async def test_scores() -> None:
    async with open_lmtp() as (it, client):
        await client.send("SCORE", model=MODEL, prompt=[1, 2], scored=[9, 8], stream_id=3, temperature=0.5)
        assert await client.stream(3) == [
            {"token": 9, "stream_id": 3, "logprob": -9 / 256, "finish_reason": None},
            {"token": 8, "stream_id": 3, "logprob": -8 / 256, "finish_reason": "stop"},
        ]
    (asked,) = it.llm.requests
    assert (asked.operation, asked.prompt_ids, asked.scored) == ("score", (1, 2), (9, 8))


async def test_model_info() -> None:
    async with open_lmtp() as (_, client):
        await client.send("MODEL_INFO", stream_id=1, model=MODEL, data={"model": MODEL})
        told = await client.item()
        assert (told["stream_id"], told["model_info"]) == (1, "counting (flow default)")
        assert told["capabilities"] == {
            "ids": True,
            "score": True,
            "logit_bias": True,
            "packed_floats": False,
            "text": True,
            "raw_text": True,
            "stop": True,
            "seed": True,
            "resume": True,
        }


async def test_a_model_that_nobody_serves_yet_is_unavailable() -> None:
    bus = MemoryBus()
    async with (
        Requestor(bus, CONFIG.topics) as requestor,
        Gateway(ON_ANY_PORT, requestor, TEXTS) as gateway,
        ClientSession(gateway.url) as http,
        http.ws_connect("/lmtp") as socket,
    ):
        await Lmtp(socket).send("MODEL_INFO", stream_id=1, model=MODEL)
        told = await Lmtp(socket).item()
        assert (told["model_info"], told["capabilities"]["ids"]) == ("<unavailable>", False)
    await bus.aclose()


async def test_an_unknown_model_ends_the_stream_with_an_error() -> None:
    # LMQL's own server answers a GENERATE by a MSG here, and its client waits for ever.
    async with open_lmtp() as (_, client):
        await client.generate(4, [1], model="nobody")
        (refused,) = await client.stream(4)
        assert refused == {"stream_id": 4, "error": "there is no model 'nobody'; there are: counting"}
        await client.send("MODEL_INFO", stream_id=5, model="nobody")
        assert (await client.item())["error"].startswith("there is no model")


@pytest.mark.parametrize(
    ("message", "kind", "stream", "says"),
    [
        # What closes LMQL's own server's socket.
        ("GENERATE", "MSG", None, "not valid JSON"),
        ("", "MSG", None, "send TYPE and a JSON object"),
        ("PLEASE {}", "MSG", None, "GENERATE, SCORE, MODEL_INFO"),
        ('generate {"stream_id":2}', "MSG", 2, "send TYPE"),
        ("GENERATE {", "MSG", None, "not valid JSON"),
        ('GENERATE {"stream_id": 2, "prompt": [1', "TOKEN", 2, "not valid JSON"),
        ('GENERATE {"stream_id":2,"prompt":[1]}', "TOKEN", 2, "model"),
        ("GENERATE [1]", "MSG", None, "wrong field"),
        ('SCORE {"stream_id":2,"model":"counting","prompt":[1]}', "TOKEN", 2, "scored"),
        ('SCORE {"stream_id":2,"model":"counting","prompt":[1],"scored":[]}', "TOKEN", 2, "scored"),
        ('MODEL_INFO {"stream_id":2}', "MSG", 2, "model"),
        ('CANCEL {"stream_id":2}', "MSG", 2, "no stream with this id"),
        ('CANCEL {"stream_id":1e400}', "MSG", None, "stream_id"),
        ('CANCEL {"stream_id":123456789012345678901}', "MSG", None, "stream_id"),
        ('BUFFER {"buffer_id":123456789012345678901}', "MSG", None, "buffer_id"),
        ("CANCEL {}", "MSG", None, "stream_id"),
        ('HELLO {"accept":7}', "MSG", None, "accept"),
        # What LMQL's own server takes without a word.
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"temperature":"hot"}', "TOKEN", 2, "temperature"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"max_tokens":0}', "TOKEN", 2, "max_tokens"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"logit_bias":"!"}', "TOKEN", 2, "no Base64"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"logit_bias":"AAAA"}', "TOKEN", 2, "of 3 bytes"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"logit_bias":[1]}', "TOKEN", 2, "logit_bias"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"logit_bias":{"x":1}}', "TOKEN", 2, "logit_bias"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"logit_bias":{"1":101}}', "TOKEN", 2, "<= 100"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[]}', "TOKEN", 2, "empty"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[-1]}', "TOKEN", 2, "prompt"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":["a"]}', "TOKEN", 2, "prompt"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":"text"}', "TOKEN", 2, "mode"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"stop":["a"]}', "TOKEN", 2, "stop"),
        ('GENERATE {"stream_id":"2","model":"counting","prompt":[1]}', "MSG", None, "stream_id"),
        ('GENERATE {"stream_id":2,"model":"counting","prompt":[1],"min_p":0.1,"mode":"x"}', "TOKEN", 2, "mode"),
    ],
)
async def test_a_wrong_message_gets_an_error_and_disturbs_nobody(
    message: str, kind: str, stream: int | None, says: str
) -> None:
    llm = TokenLlm()
    llm.step = asyncio.Semaphore(0)
    async with open_lmtp(llm) as (_, client):
        await client.generate(1, [72])
        await client.socket.send_str(message)
        told = await client.item(kind)
        assert told["stream_id"] == stream
        assert says in told["error"]
        assert set(told) == {"stream_id", "error"}
        llm.step.release()
        assert await client.stream(1) == [item(72, 1), item(END, 1, "stop")]


async def test_a_second_stream_of_one_id_is_refused_and_the_first_goes_on() -> None:
    llm = TokenLlm()
    llm.step = asyncio.Semaphore(0)
    async with open_lmtp(llm) as (_, client):
        await client.generate(1, [72])
        await client.generate(1, [73])
        assert "take another id" in (await client.item("MSG"))["error"]
        llm.step.release()
        assert await client.stream(1) == [item(72, 1), item(END, 1, "stop")]


async def test_a_model_without_ids_is_refused_by_name() -> None:
    async with open_lmtp(CountingLlm()) as (it, client):
        await client.generate(1, [72])
        (refused,) = await client.stream(1)
        assert "end_token, prompt_ids" in refused["error"]
        await client.send("SCORE", model=MODEL, prompt=[1], scored=[9], stream_id=3)
        assert "prompt_ids, score" in (await client.stream(3))[0]["error"]
        assert it.llm.requests == []
        await client.send("MODEL_INFO", stream_id=4, model=MODEL)
        told = (await client.item())["capabilities"]
        assert (told["ids"], told["score"], told["text"]) == (False, False, True)


async def test_a_mask_of_a_megabyte() -> None:
    mask = {str(number): 100 for number in range(0, 160_000, 2)}
    async with open_lmtp() as (it, client):
        assert len(json.dumps(mask)) > 1024 * 1024
        await client.generate(1, [72], logit_bias=mask)
        assert (await client.stream(1))[-1]["finish_reason"] == "stop"
        sampling = it.llm.requests[0].sampling
        assert sampling is not None
        assert sampling.logit_bias == dict.fromkeys(range(0, 160_000, 2), 100.0)
        assert sampling.packed_bias is None


class _PackedLlm(TokenLlm):
    features = TokenLlm.features | {"packed_bias"}


class _FloatsLlm(TokenLlm):
    features = _PackedLlm.features | {"packed_floats"}


async def test_masks_of_floats_are_packed_for_processors_that_know_them() -> None:
    mask = {str(number): number / 1000 for number in range(0, 90_000, 2)}
    floats = struct.pack("<4f", 0.5, -100, 0, 3.25)
    async with open_lmtp(_FloatsLlm()) as (it, client):
        await client.send("MODEL_INFO", stream_id=9, model=MODEL)
        assert (await client.item())["capabilities"]["packed_floats"] is True
        await client.generate(1, [72], logit_bias=mask)
        await client.stream(1)
        await client.generate(1, [72], logit_bias=b64encode(floats).decode())
        await client.stream(1)
        await client.generate(1, [72], logit_bias=b64encode(floats[:-1]).decode())
        assert "logit_bias: the Base64 of 15 bytes" in (await client.stream(1))[0]["error"]
    first, second = (request.sampling for request in it.llm.requests)
    assert first is not None
    assert first.packed_bias == ",".join(f"{number},{value}" for number, value in mask.items())
    assert second is not None
    assert (second.packed_floats, second.packed_bias, second.logit_bias) == (b64encode(floats).decode(), None, None)


async def test_packed_floats_are_refused_by_name_where_the_model_has_none() -> None:
    async with open_lmtp(_PackedLlm()) as (it, client):
        await client.generate(1, [72], logit_bias="AAAAAA==")
        assert "the model can't do this: packed_floats" in (await client.stream(1))[0]["error"]
        assert it.llm.requests == []


async def test_a_mask_is_packed_for_processors_that_know_it() -> None:
    mask = {str(number): -100 for number in range(0, 160_000, 2)}
    async with open_lmtp(_PackedLlm()) as (it, client):
        await client.generate(1, [72], logit_bias=mask)
        await client.generate(2, [72], logit_bias=mask | {"5": 1.5})
        await client.generate(3, [72], logit_bias=mask | {"5": "x"})
        items = await client.streams(1, 2, 3)
        assert "logit_bias" in items[3][0]["error"]
    packed, mixed = sorted(it.llm.requests, key=lambda request: bool(request.sampling and request.sampling.logit_bias))
    assert packed.sampling is not None
    assert packed.sampling.packed_bias == ",".join(f"{number},-100" for number in mask)
    assert mixed.sampling is not None
    assert mixed.sampling.logit_bias == {int(number): -100 for number in mask} | {5: 1.5}


async def test_a_request_over_the_limit_is_refused_alone() -> None:
    async with open_lmtp() as (_, client):
        await client.generate(1, [72], padding="x" * 4 * 1024 * 1024)
        assert "may have at most" in (await client.stream(1))[0]["error"]
        # It is not read first, whatever it is.
        for kind in ("GENERATE", "BUFFER"):
            await client.socket.send_str(f"{kind} [{'[' * 4 * 1024 * 1024}")
            assert "may have at most" in (await client.item())["error"]
        await client.generate(1, [72])
        assert len(await client.stream(1)) == 2


async def test_without_an_upgrade() -> None:
    async with open_gateway() as it, it.http.get("lmtp") as response:
        assert (response.status, response.content_type) == (400, "application/json")
        assert (await response.json())["code"] == "bad-request"


async def test_only_a_handshake_is_taken_from_the_other_protocol_of_its_path() -> None:
    # Some clients offer HTTP/2 with every first request.
    async with open_gateway() as it:
        await until_listed(it.http)
        for headers in ({}, {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}):
            async with it.http.get("", headers=headers) as response:
                assert response.status == 200
