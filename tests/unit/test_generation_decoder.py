"""TGI's own requests and events on the wire, by tables and by any split of the bytes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.read_body import ReadBody
from tests.fakes.tgi_generate_server import END_TEXT, event, failure, token
from tg_base.llm import LlmChunk, event_chunks, join_chunks
from tg_flow.providers.openai.generation_decoder import GenerationDecoder, generation_error, read_prefill
from tg_flow.providers.openai.generation_request import generation_parameters
from tg_schema import FinishReason, Sampling, TextCompletionRequest, Token
from tg_schema.errors import BadRequest, ProtocolError, RateLimited, TgError, Unavailable

Request = TextCompletionRequest
RAW = Request(raw=True, prompt="p")
SCHEMA = {"type": "object"}

PARAMETERS: list[tuple[Request, Sampling, dict[str, Any]]] = [
    (RAW, Sampling(), {}),
    (RAW, Sampling(temperature=0.5), {"temperature": 0.5, "do_sample": True}),
    (RAW, Sampling(temperature=0, top_p=0.5, top_k=3, typical_p=0.5), {}),
    (RAW, Sampling(top_p=1.0), {"do_sample": True}),
    (RAW, Sampling(top_p=0.5, typical_p=1.0, top_k=-1), {"top_p": 0.5, "do_sample": True}),
    (RAW, Sampling(top_k=4, typical_p=0.2), {"top_k": 4, "typical_p": 0.2, "do_sample": True}),
    (
        RAW,
        Sampling(repetition_penalty=1.5, frequency_penalty=0.5),
        {"repetition_penalty": 1.5, "frequency_penalty": 0.5},
    ),
    (RAW, Sampling(max_tokens=3, stop=("x",), seed=0), {"max_new_tokens": 3, "stop": ["x"], "seed": 0}),
    (RAW, Sampling(logprobs=0), {}),
    (RAW, Sampling(logprobs=3), {"top_n_tokens": 3}),
    (msgspec.structs.replace(RAW, max_prompt_tokens=9), Sampling(), {"truncate": 9}),
    (msgspec.structs.replace(RAW, regex="a+"), Sampling(), {"grammar": {"type": "regex", "value": "a+"}}),
    (msgspec.structs.replace(RAW, schema=SCHEMA), Sampling(), {"grammar": {"type": "json", "value": SCHEMA}}),
]


@pytest.mark.parametrize(("request_", "sampling", "sent"), PARAMETERS)
def test_parameters(request_: Request, sampling: Sampling, sent: dict[str, Any]) -> None:
    assert msgspec.to_builtins(generation_parameters(request_, sampling, None)) == {"details": True} | {
        name: tuple(value) if isinstance(value, list) else value for name, value in sent.items()
    }
    assert generation_parameters(request_, sampling, "mine")["adapter_id"] == "mine"


@pytest.mark.parametrize(
    ("sampling", "words"),
    [(Sampling(presence_penalty=0.5), "presence_penalty"), (Sampling(seed=-1), "seed: .* below 0")],
)
def test_parameters_that_tgi_lacks(sampling: Sampling, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        generation_parameters(RAW, sampling, None)


def details(reason: str, **more: Any) -> dict[str, Any]:
    return {"finish_reason": reason, "generated_tokens": 3, "input_length": 5, **more}


HEL, LO = event(token("Hel", 0)), event(token("lo €", 0))
AT_END = event(token(END_TEXT, 0, special=True), "Hello €", details("eos_token", seed=7))
COUNTS = {"in_token": 5, "out_token": 3}


def hello(*tokens: Token, text: str = "Hello €", reason: FinishReason = "stop", **more: Any) -> LlmChunk:
    return LlmChunk(text, tokens=tokens, finish_reason=reason, **{**COUNTS, **more})


T_HEL, T_LO, T_END = Token(1003, "Hel", -0.5), Token(1004, "lo €", -0.5), Token(2, END_TEXT, -0.5, special=True)

ANSWERS: list[tuple[Sampling, bytes, LlmChunk]] = [
    # The end token is counted by the server, and not by us.
    (Sampling(), HEL + LO + AT_END, hello(seed=7, out_token=2)),
    (Sampling(logprobs=0), HEL + LO + AT_END, hello(T_HEL, T_LO, seed=7, out_token=2)),
    (Sampling(logprobs=0, end_token=True), HEL + LO + AT_END, hello(T_HEL, T_LO, T_END, seed=7, out_token=2)),
    (Sampling(), HEL + event(token("lo €", 0), "Hello €", details("length")), hello(reason="length")),
    (Sampling(), HEL + b":\n\n" + LO + event(token("", 0), "Hello €", details("length")), hello(reason="length")),
    # A control token is no part of the text.
    (Sampling(), HEL + event(token("<x>", 0, special=True)) + LO + AT_END, hello(seed=7, out_token=2)),
    (
        Sampling(logprobs=2),
        event(token("Hi", 3), "Hi", details("length")),
        hello(Token(1002, "Hi", -0.5, ((1002, -0.5), (1003, -1.5)), ("Hi", "Hi")), text="Hi", reason="length"),
    ),
    # The stop string is taken out, or kept; the tokens that begin in it are its own.
    (
        Sampling(stop=("lo",), logprobs=0),
        HEL + event(token("lo", 0), "Hello", details("stop_sequence")),
        hello(T_HEL, text="Hel", stopped_by="lo"),
    ),
    (
        Sampling(stop=("lo",), keep_stop=True),
        HEL + event(token("lo", 0), "Hello", details("stop_sequence")),
        hello(text="Hello", stopped_by="lo"),
    ),
    # Within a token the server does not see it, and goes on.
    (
        Sampling(stop=("lo",)),
        HEL + LO + LO + AT_END,
        LlmChunk("Hel", finish_reason="stop", stopped_by="lo", out_token=2),
    ),
    # What may begin a stop string is shown when it does not.
    (Sampling(stop=("€!",), logprobs=0), HEL + LO + AT_END, hello(T_HEL, T_LO, seed=7, out_token=2)),
    (
        Sampling(stop=(END_TEXT,)),
        HEL + event(token(END_TEXT, 0, special=True), "Hel", details("stop_sequence")),
        hello(text="Hel", stopped_by=END_TEXT),
    ),
    # Servers without `input_length` tell no count of the prompt.
    (
        Sampling(),
        HEL + event(token("", 0), "Hel", {"finish_reason": "length"}),
        LlmChunk("Hel", finish_reason="length"),
    ),
]


async def read_all(sampling: Sampling, parts: Sequence[bytes]) -> LlmChunk:
    left = list(parts)

    async def read() -> bytes:
        return left.pop(0) if left else b""

    (whole,) = join_chunks([chunk async for chunk in event_chunks(ReadBody(read), GenerationDecoder(sampling))])
    return whole


@pytest.mark.parametrize(("sampling", "body", "whole"), ANSWERS)
async def test_events(sampling: Sampling, body: bytes, whole: LlmChunk) -> None:
    assert await read_all(sampling, [body]) == whole
    assert await read_all(sampling, [body[at : at + 1] for at in range(len(body))]) == whole


@given(st.sampled_from(ANSWERS), st.data())
def test_any_split_gives_the_same_answer(answer: tuple[Sampling, bytes, LlmChunk], data: st.DataObject) -> None:
    sampling, body, whole = answer
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=8)))
    parts = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert asyncio.run(read_all(sampling, parts)) == whole


FAULTS: list[tuple[bytes, type[TgError]]] = [
    (failure("validation", "secret"), BadRequest),
    (failure("overloaded", "secret"), RateLimited),
    (failure("generation", "secret"), Unavailable),
    (failure("incomplete_generation", "secret"), Unavailable),
    (b'data:{"error":"secret"}\n\n', Unavailable),
    (b'data:{"generated_text":"secret"}\n\n', ProtocolError),
    (b'data:{"token":7}\n\n', ProtocolError),
    (b"data:[DONE]\n\n", ProtocolError),
]


@pytest.mark.parametrize(("body", "kind"), FAULTS)
async def test_errors_in_a_stream(body: bytes, kind: type[TgError]) -> None:
    with pytest.raises(TgError) as caught:
        await read_all(Sampling(), [HEL + body])
    assert type(caught.value) is kind
    assert "secret" not in caught.value.message


def test_bodies_that_are_not_streamed() -> None:
    assert generation_error(b'{"error":"x","error_type":"overloaded"}').code == "overloaded"
    prefill = [{"id": 1, "text": "<s>", "logprob": None}, {"id": 5, "text": "a", "logprob": -0.5}]
    assert read_prefill(msgspec.json.encode({"details": {"prefill": prefill}})) == (
        Token(1, "<s>", None),
        Token(5, "a", -0.5),
    )
    for wrong in ([], [prefill[0], prefill[0]]):
        with pytest.raises(msgspec.DecodeError):
            read_prefill(msgspec.json.encode({"details": {"prefill": wrong}}))
