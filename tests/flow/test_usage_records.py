"""Each call of a model has its record of usage, however it ended, with the payer of the request that it is made for."""

import asyncio
import json
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fakes.counting_llm import SteppedLlm
from tests.fakes.openai_server import Fault, OpenAiServer, Script
from tests.fakes.silent_server import SilentServer
from tests.flow.agent_dialog import pipeline
from tests.flow.background_asking import poll
from tests.flow.open_gateway import open_gateway
from tests.flow.openai_sdk import ask, sdk
from tests.flow.test_own_caches import Listening
from tests.flow.usage_records import KEYED, TOKEN, complete, open_provider, read_records, record_here
from tests.flow.waiting_gateways import FLEX
from tg_base.server.usage_account import FAILED_CALLS
from tg_base.telemetry import trace
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import TextCompletionRequest, Usage
from tg_schema.prompt_size import IMAGE_BYTES, TOKEN_BYTES
from tg_schema.usage_record import Payer, UsageRecord

WORDS = tuple(f"{word} " for word in ("the", "quick", "brown", "fox", "jumps", "home") * 40)
"""An answer whose tokens are its words, as the server counts it."""
SHOP = Payer("shop", "acme", ("web", "eu"))


async def test_a_complete_call_has_all_that_is_known_of_it() -> None:
    before = int(time.time() * 1000)
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        assert (await complete(opened))["choices"]
        (record,) = await read_records(opened.bus, 1)
    assert record == UsageRecord(
        record.stream, 1, unique=True, request="r-1", payer=SHOP, door="openai", flow="default", model="counting",
        provider="OpenAiCompatible", upstream_model=server.model, usage=Usage(11, 3), queued_at=record.queued_at,
        began_at=record.began_at, first_at=record.first_at, ended_at=record.ended_at,
    )  # fmt: skip
    clocks = (before, record.queued_at, record.began_at, record.first_at or 0, record.ended_at)
    assert list(clocks[2:]) == sorted(clocks[2:])
    assert all(clock >= before - 1 for clock in clocks)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_request_says_for_whom_it_is(*, streaming: bool) -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        asked = {"model": "counting", "input": "Hi.", "user": "u" * 300, "stream": streaming}
        async with opened.http.post("v1/responses", json=asked, headers=TOKEN) as response:
            assert response.status == 200
            await response.read()
        (record,) = await read_records(opened.bus, 1)
    assert (record.payer, record.door) == (Payer("shop", "u" * 256, SHOP.tags), "responses")


async def test_without_a_key_there_is_no_payer_but_the_one_that_is_named() -> None:
    async with open_gateway() as opened:
        for body in ({"prompt": "1"}, {"prompt": "1", "user": "käthe"}):
            async with opened.http.post("api/v1/text-completion", json=body) as response:
                assert response.status == 200
        records = await read_records(opened.bus, 2)
    assert [record.payer for record in records] == [Payer(), Payer(customer="käthe")]
    assert [record.door for record in records] == ["native", "native"]


async def test_each_request_on_a_socket_has_its_own_payer_and_the_sockets_door() -> None:
    async with open_gateway(KEYED) as opened, opened.http.ws_connect("api/v1/socket", headers=TOKEN) as socket:
        for user in ("a", "b"):
            request = {"prompt": "1", "user": user}
            await socket.send_json({"id": user, "service": "text-completion", "flow": "default", "request": request})
            assert "error" not in await socket.receive_json(timeout=30)
        records = await read_records(opened.bus, 2)
    assert [record.payer.customer for record in records] == ["a", "b"]
    assert {(record.payer.key, record.door) for record in records} == {("shop", "native")}


async def test_what_names_a_payer_badly_costs_its_key_nothing() -> None:
    limited = msgspec.structs.replace(KEYED, keys=(msgspec.structs.replace(KEYED.keys[0], streams=1),))
    async with open_gateway(limited) as opened:
        for user, status in (("\ud800", 400), ("a", 200)):
            body = json.dumps({"prompt": "1", "user": user}).encode()
            async with opened.http.post("api/v1/text-completion", data=body, headers=TOKEN) as response:
                assert response.status == status, await response.text()


async def test_a_refusal_has_the_providers_status_and_id_and_no_counts() -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        server.play(Script.refuse(400, "unsupported_value", x_request_id="req-7"))
        assert "error" in await complete(opened)
        (record,) = await read_records(opened.bus, 1)
    assert (record.outcome, record.error) == ("failed", "bad-request")
    assert (record.upstream_status, record.upstream_request) == (400, "req-7")
    assert (record.usage, record.estimated, record.first_at) == (Usage(), False, None)


async def test_each_retry_is_a_call_of_its_own() -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        server.play(Script.refuse(429, "rate_limit_exceeded", retry_after="0"), Script())
        assert (await complete(opened))["choices"]
        refused, complete_one = await read_records(opened.bus, 2)
    assert (refused.stream, refused.call, refused.error) == (complete_one.stream, FAILED_CALLS + 1, "rate-limited")
    assert (complete_one.call, complete_one.outcome, complete_one.usage) == (1, "complete", Usage(11, 3))


async def test_each_of_merged_answers_is_a_call_of_its_own() -> None:
    async with OpenAiServer.running() as server, open_provider(server, without=frozenset({"n"})) as opened:
        assert len((await complete(opened, n=3))["choices"]) == 3
        records = await read_records(opened.bus, 3)
    assert sorted(record.call for record in records) == [1, 2, 3]
    assert [record.usage for record in records] == [Usage(11, 3)] * 3
    assert len({record.stream for record in records}) == 1


async def test_a_request_that_no_provider_got_has_no_record() -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        assert "error" in await complete(opened, messages=[{"role": "tool", "content": "x"}])
        for refused in ({"prompt": "x", "regex": "a"}, {"messages": [{"role": "tool", "content": "x"}]}):
            async with opened.http.post("api/v1/text-completion", json=refused, headers=TOKEN) as response:
                assert response.status == 400, await response.text()
        assert (await complete(opened))["choices"]
        assert len(server.exchanges) == 1 == len(await read_records(opened.bus, 1))


@pytest.mark.parametrize("fault", [Fault.ABORT, Fault.CLEAN_END])
async def test_a_call_that_fails_in_its_midst_is_estimated(fault: Fault) -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        server.play(Script(WORDS, fault=fault, after=100))
        await complete(opened)
        (record,) = await read_records(opened.bus, 1)
    assert (record.outcome, record.error, record.estimated) == ("failed", "incomplete-stream", True)
    assert record.usage.out_token == pytest.approx(100, rel=0.1)


async def test_a_call_that_its_client_leaves_is_estimated_within_a_tenth() -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        server.play(Script(WORDS, fault=Fault.STALL, after=150))
        async with sdk(opened.gateway, key="secret") as client:
            stream = await client.chat.completions.create(**ask("word " * 100), stream=True)
            heard = ""
            async for chunk in stream:
                heard += chunk.choices[0].delta.content or ""
                if len(heard.split()) == 150:
                    break
            await stream.close()
        (record,) = await read_records(opened.bus, 1)
        sent = server.exchanges[0].sent
    assert (record.outcome, record.error, record.estimated) == ("left", None, True)
    assert record.usage.out_token == pytest.approx(sent, rel=0.1)
    assert record.usage.in_token == pytest.approx(125, rel=0.1)


async def test_what_the_provider_told_before_its_client_left_is_no_estimate() -> None:
    llm = SteppedLlm(steps=10)
    async with open_gateway(llm=llm) as opened:
        asked = {"prompt": "100", "streaming": True}
        async with opened.http.post("api/v1/text-completion", json=asked) as response:
            while b"9 " not in await response.content.readuntil(b"\n\n"):
                pass
        (record,) = await read_records(opened.bus, 1)
    assert (record.outcome, record.usage.out_token, llm.generated) == ("left", 10, 10)
    assert record.usage.in_token == 1, "its three digits are a token, which the provider had not told yet"


async def test_a_call_left_before_its_first_token_has_used_its_prompt() -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        server.play(Script(fault=Fault.STALL_BEFORE_STATUS))
        asking = asyncio.create_task(complete(opened))
        await (await server.exchange(0)).began.wait()
        asking.cancel()
        (record,) = await read_records(opened.bus, 1)
    assert (record.outcome, record.estimated, record.usage) == ("left", True, Usage(3, 0))


async def test_a_large_image_counts_as_a_usual_one() -> None:
    async with OpenAiServer.running() as server, open_provider(server) as opened:
        server.play(Script(fault=Fault.STALL_BEFORE_STATUS))
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
        content = [{"type": "text", "text": "What is it?"}, image]
        asking = asyncio.create_task(complete(opened, messages=[{"role": "user", "content": content}]))
        await (await server.exchange(0)).began.wait()
        asking.cancel()
        (record,) = await read_records(opened.bus, 1)
    assert record.usage.in_token == pytest.approx(IMAGE_BYTES / TOKEN_BYTES, rel=0.02)


async def test_a_call_left_before_it_was_sent_is_none() -> None:
    records = record_here()
    async with SilentServer.running() as server:
        # It waits for the answer to its TLS handshake.
        options = OpenAiOptions(base_url=server.url.replace("http:", "https:"), key_variable="", upstream_model="m")
        async with aclosing(await OpenAiCompatible.open("m", options)) as provider:
            answer = provider.on_request(TextCompletionRequest(prompt="Hi.", streaming=True))
            asking = asyncio.ensure_future(anext(answer))
            await server.asked.wait()
            asking.cancel()
            await asyncio.wait([asking])
    assert records == []


async def test_the_payer_goes_through_the_agent_and_the_prompt(tmp_path: Path) -> None:
    async with pipeline(Listening(), tmp_path) as it:
        text = '{"key":"shop","customer":"acme","tags":["web","eu"]}'
        trace.enter(trace.Span.at_door("r-9", None, "native"))
        trace.name_caller("c1", text)
        assert (await it.tell()).answer
        (record,) = await read_records(it.bus, 1)
    assert (record.payer, record.request, record.door, record.operation) == (SHOP, "r-9", "native", "completion")


async def test_background_and_waiting_responses_have_their_payer() -> None:
    config = msgspec.structs.replace(KEYED, max_wait=FLEX.max_wait)
    async with open_gateway(config) as opened, sdk(opened.gateway, key="secret") as client:
        tiers: tuple[dict[str, Any], ...] = ({}, {"service_tier": "flex"})
        for tier in tiers:
            begun = await client.responses.create(model="counting", input="3", background=True, user="bob", **tier)
            assert (await poll(client, begun.id)).status == "completed"
        records = await read_records(opened.bus, 2)
    assert [(record.payer.customer, record.payer.key, record.door) for record in records] == [
        ("bob", "shop", "responses")
    ] * 2
    assert len({record.request for record in records}) == 2


async def test_each_item_of_a_batch_has_its_payer() -> None:
    async with open_gateway(KEYED) as opened:
        asked = {"model": "counting", "prompt": ["1", "2", "3"]}
        async with opened.http.post("v1/completions", json=asked, headers=TOKEN) as response:
            assert response.status == 200, await response.text()
        records = await read_records(opened.bus, 3)
    assert [record.payer for record in records] == [SHOP] * 3
    assert len({record.stream for record in records}) == 3
    assert len({record.request for record in records}) == 1
