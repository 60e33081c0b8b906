"""LMTP: a stream with a request_key goes on without its socket, and any gateway's sockets read on in it."""

import asyncio
import hashlib

from msgspec import structs

from tests.doors.lmtp_pair import WHOLE, WORD, open_pair, read_tokens, told
from tests.doors.open_lmtp import MODEL
from tests.fakes.held_bus import HeldBus
from tests.fakes.token_llm import END
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.config import ApiKey, GatewayConfig
from tg_gateway.access import Limits

KEYS = tuple(ApiKey(name=name, sha256=hashlib.sha256(name.encode()).hexdigest()) for name in ("a", "b"))


async def test_the_same_request_again_reads_the_first_one_s_answer_and_another_is_refused() -> None:
    async with open_pair() as it, it.connect() as client, it.connect() as same, it.connect(other=True) as other:
        # At the same moment, at this gateway: whichever comes first begins it.
        for stream, each in enumerate((client, same), 1):
            await each.generate(stream, WORD, request_key="k")
        it.step(2)
        begun = [await read_tokens(each, 2) for each in (client, same)]
        assert told(begun[0]) == told(begun[1]) == WHOLE[:2]
        await other.send("BUFFER", buffer_id="b", append=WORD)
        await other.item()
        # Elsewhere, in another way, and later.
        prompt = {"buffer": "b"}
        await other.generate(7, prompt, request_key="k", deadline_ms=60_000)
        assert told(await read_tokens(other, 2)) == WHOLE[:2]
        for changed in ({"prompt": [1]}, {"max_tokens": 5}, {"logit_bias": {"1": 1}}, {"mode": "text", "prompt": "Hi"}):
            await other.generate(8, **({"prompt": WORD, "request_key": "k"} | changed))
            (refused,) = await other.stream(8)
            assert (refused["code"], "another request" in refused["error"]) == ("bad-request", True), changed
        it.step(5)
        assert told(await other.stream(7)) == WHOLE[2:]
        await same.generate(9, WORD, request_key="k")
        streams = await same.streams(2, 9)
        assert (told(streams[2]), told(streams[9])) == (WHOLE[2:], WHOLE)
        assert len(it.llm.requests) == 1, "it is asked once"


async def test_a_request_that_cannot_begin_leaves_its_key_to_the_same_one_that_waits_for_it() -> None:
    bus = HeldBus(MemoryBus())
    bus.failing = 1
    async with open_pair(bus=bus) as it, it.connect() as first, it.connect() as same:
        for client in (first, same):
            await client.generate(1, WORD, request_key="k")
            await client.send("MODEL_INFO", stream_id=2, model=MODEL)
            await client.item()
        bus.open.set()
        (failed,) = await first.stream(1)
        assert failed["retryable"]
        it.step(20)
        assert told(await same.stream(1)) == WHOLE
        await first.generate(3, WORD, request_key="k")
        assert told(await first.stream(3)) == WHOLE


async def test_a_stream_survives_its_socket_and_any_gateway_goes_on_without_gap_or_repetition() -> None:
    async with open_pair() as it:
        async with it.connect() as client:
            await client.generate(1, WORD, request_key="k")
            it.step(2)
            begun = await read_tokens(client, 2)
        async with it.connect(other=True) as client, it.connect() as another:
            await client.send("RESUME", stream_id=9, request_key="k", after_seq=2)
            await another.send("RESUME", stream_id=3, request_key="k")
            it.step(4)
            rest, again = await client.stream(9), await another.stream(3)
            assert told(begun) + told(rest) == told(again) == WHOLE
            assert {key: rest[0][key] for key in ("stream_id", "logprob")} == {"stream_id": 9, "logprob": -108 / 256}
            assert it.llm.generated == len(WORD)
            # What has ended is kept as well.
            for after in (0, 3, 6):
                await client.send("RESUME", stream_id=9, request_key="k", after_seq=after)
                assert told(await client.stream(9)) == WHOLE[after:]
            for after in (7, 100):
                await client.send("RESUME", stream_id=9, request_key="k", after_seq=after)
                (refused,) = await client.stream(9)
                assert (refused["code"], "ended with item 7" in refused["error"]) == ("bad-request", True)
        assert len(it.llm.requests) == 1


async def test_text_and_scores_are_resumed_too() -> None:
    async with open_pair() as it, it.connect() as client, it.connect(other=True) as other:
        await client.generate(1, "Hello", mode="text", request_key="text", top_logprobs=1)
        await client.send("SCORE", stream_id=2, model=MODEL, prompt=[1], scored=[2, 3], request_key="score")
        it.step(5)
        first = await client.streams(1, 2)
        for stream, key in ((1, "text"), (2, "score")):
            await other.send("RESUME", stream_id=stream, request_key=key)
            again = await other.stream(stream)
            assert again == first[stream]
            assert [each["seq"] for each in again] == list(range(1, len(again) + 1))
            await other.send("RESUME", stream_id=stream, request_key=key, after_seq=1)
            assert await other.stream(stream) == again[1:]
        assert "".join(each["text"] for each in first[1]) == "Hello"


async def test_without_a_key_nothing_has_a_number() -> None:
    async with open_pair() as it, it.connect() as client:
        it.step(1)
        await client.generate(1, [72])
        assert not any("seq" in each for each in await client.stream(1))
        assert it.llm.requests[0].prompt_ids == (72,)


async def test_who_joins_a_stream_of_another_gateway_needs_no_room_in_its_own() -> None:
    full = Limits(background=1)
    async with (
        open_pair(limits=full, other_limits=Limits(all_background=0)) as it,
        it.connect() as one,
        it.connect(other=True) as other,
    ):
        await one.generate(1, WORD, request_key="k")
        await until(lambda: len(it.llm.requests) == 1)
        await other.generate(2, WORD, request_key="new")
        assert (await other.stream(2))[0]["code"] == "rate-limited"
        await other.generate(3, WORD, request_key="k")
        it.step(20)
        assert told(await one.stream(1)) == told(await other.stream(3)) == WHOLE
        assert len(it.llm.requests) == 1


async def test_of_two_gateways_that_are_given_one_request_at_a_time_one_answers_both() -> None:
    async with open_pair() as it, it.connect() as one, it.connect(other=True) as other:
        it.step(100)
        for number in range(5):
            await asyncio.gather(*(each.generate(1, [72], request_key=f"k{number}") for each in (one, other)))
            answers = [await each.stream(1) for each in (one, other)]
            assert answers[0] == answers[1]
            assert [each["token"] for each in answers[0]] == [72, END]


async def test_of_two_gateways_that_are_given_one_key_at_a_time_one_answers() -> None:
    async with open_pair() as it, it.connect() as one, it.connect(other=True) as other:
        it.step(100)
        for number in range(5):
            clients = (one, [72]), (other, [73])
            await asyncio.gather(*(each.generate(1, said, request_key=f"k{number}") for each, said in clients))
            answers = [await each.stream(1) for each in (one, other)]
            assert sorted("error" in each[-1] for each in answers) == [False, True], answers


async def test_keys_that_are_not_known() -> None:
    async with open_pair() as it, it.connect() as client:
        await client.send("RESUME", stream_id=1, request_key="never")
        (refused,) = await client.stream(1)
        assert (refused["code"], refused["retryable"]) == ("not-found", False)
        for wrong in ({}, {"request_key": ""}, {"request_key": "k" * 257}, {"request_key": "k", "after_seq": -1}):
            await client.send("RESUME", stream_id=1, **wrong)
            assert (await client.stream(1))[0]["code"] == "bad-request"
        await client.send("RESUME", request_key="k")
        assert "stream_id" in (await client.item())["error"]


async def test_another_api_key_finds_nothing_and_may_use_the_same_word() -> None:
    async with (
        open_pair(GatewayConfig(port=0, drain=0.05, keys=KEYS)) as it,
        it.connect(key="a") as mine,
        it.connect(key="b") as theirs,
    ):
        it.step(10)
        await mine.generate(1, [72], request_key="k")
        await mine.stream(1)
        await theirs.send("RESUME", stream_id=1, request_key="k")
        assert (await theirs.stream(1))[0]["code"] == "not-found"
        await theirs.generate(1, [73], request_key="k")
        assert [each["token"] for each in await theirs.stream(1)] == [73, END]
        await mine.send("RESUME", stream_id=1, request_key="k")
        assert [each["token"] for each in await mine.stream(1)] == [72, END]


async def test_nothing_is_kept_for_an_api_key_with_store_false() -> None:
    keys = tuple(structs.replace(key, store=key.name != "b") for key in KEYS)
    async with open_pair(GatewayConfig(port=0, drain=0.05, keys=keys)) as it, it.connect(key="b") as client:
        it.step(10)
        await client.generate(1, [72], request_key="k")
        (refused,) = await client.stream(1)
        assert (refused["code"], "store = false" in refused["error"]) == ("bad-request", True)
        await client.generate(2, [72])
        assert [each["token"] for each in await client.stream(2)] == [72, END]
