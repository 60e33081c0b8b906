"""LMTP beyond LMQL's clients: text, CANCEL, kinds of errors, deadlines, SYSTEM messages and buffers."""

import asyncio
import gc
from typing import Any

import pytest

from tests.doors.open_lmtp import MODEL, Lmtp, open_lmtp
from tests.fakes.counting_llm import CountingLlm
from tests.fakes.token_llm import END, TokenLlm
from tg_doors.lmtp.buffers import MAX_BUFFERED_UNITS, MAX_BUFFERS, hash_content
from tg_doors.lmtp.request import GenerateBody
from tg_schema import Message


def gated(words: int = 0) -> TokenLlm:
    llm = TokenLlm()
    llm.step = asyncio.Semaphore(words)
    return llm


async def read_text(client: Lmtp, stream: int) -> str:
    items = await client.stream(stream)
    assert items[-1] == {"stream_id": stream, "text": "", "finish_reason": "stop"}, items[-1]
    return "".join(each["text"] for each in items)


async def test_text_of_a_raw_prompt() -> None:
    async with open_lmtp() as (it, client):
        await client.generate(1, "Hello", mode="text", stop=["x"])
        assert await read_text(client, 1) == "Hello"
        (asked,) = it.llm.requests
        assert (asked.prompt, asked.raw, asked.prompt_ids) == ("Hello", True, ())
        assert asked.sampling is not None
        assert (asked.sampling.stop, asked.sampling.logprobs, asked.sampling.end_token) == (("x",), None, False)


async def test_text_of_turns_from_a_model_that_knows_no_ids() -> None:
    async with open_lmtp(CountingLlm()) as (it, client):
        turns = [{"role": "system", "content": "Count."}, {"role": "user", "content": "3"}]
        await client.generate(1, turns, mode="text")
        assert await read_text(client, 1) == "0 1 2 "
        (asked,) = it.llm.requests
        assert (asked.system, asked.prompt, asked.messages) == ("Count.", "3", ())
        await client.generate(1, [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], mode="text")
        await client.stream(1)
        assert it.llm.requests[1].messages == (Message("user", "a"), Message("assistant", "b"))


async def test_text_has_no_fields_that_do_nothing() -> None:
    async with open_lmtp() as (it, client):
        await client.generate(1, "A", mode="text", tools=[])
        (refused,) = await client.stream(1)
        assert refused["error"] == "wrong field: Object contains unknown field `tools`"
        await client.generate(1, [65], tools=[], chunk_size=16)
        assert (await client.stream(1))[-1]["finish_reason"] == "stop"
        assert len(it.llm.requests) == 1


async def test_text_with_its_tokens() -> None:
    async with open_lmtp() as (_, client):
        await client.generate(1, "A", mode="text", top_logprobs=1)
        told, last = await client.stream(1)
        token = {"token": 65, "logprob": -65 / 256, "top_logprobs": {"65": -65 / 256, "64": -64 / 256}}
        assert told == {"stream_id": 1, "text": "A", "finish_reason": None, "tokens": [token]}
        assert last == {"stream_id": 1, "text": "", "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("prompt", "says"), [([1, 2], "token ids"), ("", "empty"), ([], "empty"), ([{"role": "x"}], "role")]
)
async def test_what_text_mode_does_not_take(prompt: Any, says: str) -> None:
    async with open_lmtp() as (_, client):
        await client.generate(1, prompt, mode="text")
        (refused,) = await client.stream(1)
        assert says in refused["error"]


async def test_raw_text_for_a_model_that_has_none() -> None:
    async with open_lmtp(CountingLlm()) as (_, client):
        await client.generate(1, "3", mode="text")
        (refused,) = await client.stream(1)
        assert "the model can't do this: raw" in refused["error"]


async def test_a_cancel_stops_the_model_at_once() -> None:
    llm = gated(3)
    async with open_lmtp(llm) as (_, client):
        await client.generate(1, [7] * 1000, max_tokens=1000)
        seen: list[int] = []
        while len(seen) < 3:
            seen += [each["token"] for each in (await client.read())[1]]
        assert seen == [7, 7, 7]
        await client.send("CANCEL", stream_id=1)
        assert await client.stream(1) == [{"stream_id": 1, "error": "the request was cancelled"}]
        await asyncio.wait_for(llm.stopped.wait(), 10)
        assert llm.step is not None
        for _ in range(1000):
            llm.step.release()
        await client.generate(1, [5])
        assert [each["token"] for each in await client.stream(1)] == [5, END]
        assert llm.generated == 3 + 1


async def test_errors_have_kinds_for_who_accepts_them() -> None:
    async with open_lmtp(gated()) as (_, client):
        await client.send("HELLO", accept=["ERRORS", "TELEPATHY"], stream_id=9)
        assert await client.item() == {"stream_id": 9, "accepted": ["ERRORS"]}
        await client.generate(1, [1], model="nobody")
        (refused,) = await client.stream(1)
        assert (refused["code"], refused["retryable"]) == ("not-found", False)
        assert "retry_after_ms" not in refused
        await client.send("CANCEL", stream_id=1)
        assert (await client.item())["code"] == "not-found"


async def test_a_deadline_ends_the_stream_and_the_model() -> None:
    llm = gated()
    async with open_lmtp(llm) as (_, client):
        await client.send("HELLO", accept=["ERRORS"])
        await client.item()
        await client.generate(1, [1], deadline_ms=50)
        (refused,) = await client.stream(1)
        assert refused == {
            "stream_id": 1,
            "error": "no complete answer within 0.05 s",
            "code": "timeout",
            "retryable": True,
        }
        # On a slow machine it may not have begun.
        if llm.started.is_set():
            await asyncio.wait_for(llm.stopped.wait(), 10)


async def test_system_messages_for_who_accepts_them() -> None:
    llm = gated()
    async with open_lmtp(llm) as (_, client):
        await client.send("HELLO", accept=["SYSTEM"])
        assert await client.item() == {"stream_id": None, "accepted": ["SYSTEM"]}
        await client.generate(1, [1])
        assert await client.item("SYSTEM") == {"stream_id": 1, "kind": "queued"}
        assert await client.item("SYSTEM") == {"stream_id": 1, "kind": "started"}
        assert llm.step is not None
        llm.step.release()
        assert [each["token"] for each in await client.stream(1)] == [1, END]


async def test_a_prompt_is_sent_once_and_named_later() -> None:
    async with open_lmtp() as (it, client):
        await client.send("BUFFER", buffer_id="b", append=[1, 2], stream_id=5)
        assert await client.item() == {"stream_id": 5, "buffer_id": "b", "size": 2}
        await client.send("BUFFER", buffer_id="b", append=[3])
        assert (await client.item())["size"] == 3
        await client.generate(1, {"buffer": "b"})
        await client.generate(2, {"buffer": "b", "upto": 2, "append": [9]})
        await client.streams(1, 2)
        await client.send("SCORE", model=MODEL, prompt={"buffer": "b", "append": [4]}, scored=[8], stream_id=3)
        await client.stream(3)
        asked = {request.prompt_ids: request.cache_key for request in it.llm.requests}
    whole, part = hash_content((1, 2, 3)), hash_content((1, 2))
    assert asked == {(1, 2, 3): whole, (1, 2, 9): part, (1, 2, 3, 4): whole}
    assert whole != part


async def test_a_buffer_that_grows_between_its_requests_keeps_its_key() -> None:
    async with open_lmtp() as (it, client):
        for number in range(3):
            await client.send("BUFFER", buffer_id="b", append=[number + 1])
            await client.item()
            await client.generate(1, {"buffer": "b"})
            await client.stream(1)
        assert [request.cache_key for request in it.llm.requests] == [hash_content((1,))] * 3


async def read_leaving(client: Lmtp) -> tuple[dict[str, Any], list[int]]:
    """What is said of the buffer that a stream leaves, and the stream's tokens; the buffer is there before the last."""
    said: dict[str, Any] = {}
    tokens: list[int] = []
    while True:
        kind, items = await client.read()
        if kind == "MSG":
            (said,) = items
            continue
        tokens += [each.get("token", 0) for each in items]
        if "error" in items[-1] or items[-1]["finish_reason"] is not None:
            assert said
            return said, tokens


async def test_a_finished_stream_is_the_beginning_of_the_next_prompt() -> None:
    async with open_lmtp() as (it, client):
        await client.generate(1, [1, 2], buffer_id="story")
        told = {"stream_id": 1, "buffer_id": "story", "size": 4}
        assert await read_leaving(client) == (told, [1, 2, END])
        # It goes on in the same buffer; of an answer that reached its limit every token counts.
        await client.generate(1, {"buffer": "story", "append": [9]}, buffer_id="story", max_tokens=2)
        assert await read_leaving(client) == (told | {"size": 7}, [1, 2])
        await client.generate(1, {"buffer": "story", "upto": 6})
        await client.stream(1)
        assert [request.prompt_ids for request in it.llm.requests[1:]] == [(1, 2, 1, 2, 9), (1, 2, 1, 2, 9, 1)]
        # The first one has it too: what comes after it finds the processor that has begun it.
        assert [request.cache_key for request in it.llm.requests] == [hash_content((1, 2))] * 3


async def test_a_stream_of_text_leaves_its_text() -> None:
    async with open_lmtp() as (it, client):
        await client.generate(1, "Hel", mode="text", buffer_id=7)
        assert (await read_leaving(client))[0]["size"] == 6
        await client.generate(1, {"buffer": 7, "append": "!"}, mode="text")
        assert await read_text(client, 1) == "HelHel!"
        assert it.llm.requests[1].prompt == "HelHel!"


async def test_a_cancelled_stream_leaves_what_it_has_said() -> None:
    async with open_lmtp(gated(2)) as (_, client):
        await client.generate(1, [7, 8, 9], buffer_id="b")
        while (await client.read())[1][-1]["token"] != 8:
            pass
        await client.send("CANCEL", stream_id=1)
        assert (await read_leaving(client))[0] == {"stream_id": 1, "buffer_id": "b", "size": 5}
        await client.generate(1, {"buffer": "b", "append": [4]}, buffer_id="c")
        await client.send("CANCEL", stream_id=1)
        assert (await read_leaving(client))[0]["size"] == 6


async def test_streams_that_leave_no_buffer() -> None:
    llm = gated(2)
    async with open_lmtp(llm) as (_, client):
        for wrong, says in (
            ({"request_key": "k"}, "belongs to its socket"),
            ({"buffer_id": "x" * 257}, "at most 256"),
            ({"mode": "text", "prompt": [{"role": "user", "content": "a"}]}, "no turns"),
        ):
            await client.generate(1, **{"prompt": [1], "buffer_id": "b"} | wrong)
            assert says in (await client.stream(1))[0]["error"]
        await client.send("BUFFER", buffer_id="b", append=[5])
        await client.item()
        await client.generate(1, [7, 8, 9], buffer_id="b", deadline_ms=1)
        assert "error" in (await client.stream(1))[-1]
        # What does not fit leaves the buffer as it was, and the stream ends well.
        await client.send("BUFFER", buffer_id="large", append="x" * (MAX_BUFFERED_UNITS - 1))
        await client.item()
        assert llm.step is not None
        llm.step.release()
        await client.generate(1, [6], buffer_id="b")
        told, tokens = await read_leaving(client)
        assert ("drop one" in told["error"], tokens) == (True, [6, END])
        await client.send("BUFFER", buffer_id="b")
        assert (await client.item())["size"] == 1


async def test_buffers_of_text() -> None:
    async with open_lmtp() as (it, client):
        await client.send("BUFFER", buffer_id=1, append="Hel")
        await client.item()
        await client.generate(1, {"buffer": 1, "append": "lo"}, mode="text")
        assert await read_text(client, 1) == "Hello"
        await client.generate(2, {"buffer": 1})
        assert "this is a text" in (await client.stream(2))[0]["error"]
        await client.send("BUFFER", buffer_id=1, append=[1])
        assert "either token ids or text" in (await client.item())["error"]
        assert len(it.llm.requests) == 1


async def test_buffers_are_bounded_and_can_be_dropped() -> None:
    async with open_lmtp() as (_, client):
        await client.send("BUFFER", buffer_id=0, append="x" * MAX_BUFFERED_UNITS)
        assert (await client.item())["size"] == MAX_BUFFERED_UNITS
        await client.send("BUFFER", buffer_id=1, append="x")
        assert "drop one" in (await client.item())["error"]
        await client.send("BUFFER", buffer_id=0, drop=True)
        assert (await client.item())["size"] == 0
        for number in range(MAX_BUFFERS):
            await client.send("BUFFER", buffer_id=number)
            await client.item()
        await client.send("BUFFER", buffer_id="another")
        assert f"at most {MAX_BUFFERS} buffers" in (await client.item())["error"]
        await client.send("BUFFER", buffer_id="never", drop=True)
        assert "no buffer 'never'" in (await client.item())["error"]
        await client.generate(1, {"buffer": "never"})
        assert "no buffer 'never'" in (await client.stream(1))[0]["error"]
        await client.generate(1, {"buffer": 0, "upto": 9})
        assert "has only 0" in (await client.stream(1))[0]["error"]


async def test_a_quick_stream_leaves_no_body_to_the_timer_that_would_have_explained_it() -> None:
    async with open_lmtp() as (_, client):
        await client.send("HELLO", accept=["SYSTEM"])
        await client.item()
        await client.generate(1, [1, 2], logit_bias={"1": 0.5})
        while (await client.read())[1][-1].get("finish_reason") is None:
            pass
        # Its task has ended by then.
        await client.send("MODEL_INFO", stream_id=2, model=MODEL)
        await client.item()
        gc.collect()
        assert not [each for each in gc.get_objects() if isinstance(each, GenerateBody)]
