"""A stream that was kept is shown again at the pace at which it came, and answers in place of its model."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.failing_llm import FailingLlm
from tests.fakes.scripted_agent import ScriptedAgent
from tests.flow.command import ran
from tests.flow.kept_streams import DEADLINE, ask_chat, ask_native, begin, open_agent_pair, open_pair
from tests.flow.narrow_gateway import digest_of, token_of
from tests.flow.open_gateway import open_gateway
from tests.virtual_time import in_virtual_time
from tg_base.config import ApiKey, GatewayConfig
from tg_base.llm import LlmService
from tg_flow.providers import open_provider
from tg_gateway.access import Limits
from tg_schema import Message, TextCompletionRequest, TextCompletionResponse, Tool, encode
from tg_schema.errors import BadRequest, IncompleteStream

WORDS = 5


async def record(tmp_path: Path, llm: CountingLlm, asking: Callable[[str], tuple[str, dict[str, Any]]]) -> Path:
    """A file of what `tg-replay --json` prints of a stream that was read to its end."""
    recording = tmp_path / "recording"
    async with open_gateway(llm=llm) as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.http, asking(str(WORDS)))
        await reader.until_end()
        done = await ran("tg-replay", reader.name, "--json", "--speed", "max", "-u", str(it.http._base_url))
    assert (done.code, done.err == "") == ((0, True) if type(llm) is CountingLlm else (1, False)), done
    recording.write_text(done.out)
    return recording


async def ask_into(llm: LlmService[Any], shown: list[str]) -> None:
    async for each in llm.on_request(TextCompletionRequest(prompt="whatever", streaming=True)):
        shown += [each.response or ""]


async def ask(llm: LlmService[Any], **fields: Any) -> list[TextCompletionResponse]:
    request = TextCompletionRequest(prompt="whatever", streaming=True, **fields)
    return [record async for record in llm.on_request(request)]


@pytest.mark.parametrize("asking", [ask_native, ask_chat])
async def test_the_recording_of_a_stream_answers_as_its_model_did(
    asking: Callable[[str], tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    recording = await record(tmp_path, CountingLlm(), asking)
    async with aclosing(
        await open_provider("replay", "again", {"recording": str(recording), "speed": "max"})
    ) as replay:
        asked: tuple[dict[str, Any], ...] = (
            {},
            {"messages": (Message("user", "Hi"),)},
            {"tools": (Tool("add", "Adds", {}),), "tool_choice": "auto"},
        )
        for fields in asked:
            records = await ask(replay, **fields)
            assert "".join(each.response or "" for each in records) == "0 1 2 3 4 "
            last = records[-1]
            assert (last.finish_reason, last.in_token, last.out_token, last.last) == ("stop", 7, WORDS, True)


async def test_the_recording_of_a_failure_fails_alike(tmp_path: Path) -> None:
    recording = await record(tmp_path, FailingLlm(), ask_native)
    async with aclosing(
        await open_provider("replay", "again", {"recording": str(recording), "speed": "max"})
    ) as replay:
        shown = list[str]()
        with pytest.raises(IncompleteStream):
            await ask_into(replay, shown)
        assert "".join(shown) == "0 1 2 3 4 "


@in_virtual_time
async def test_a_recording_keeps_its_pace(tmp_path: Path) -> None:
    time, recording = asyncio.get_running_loop().time, tmp_path / "recording"
    lines = [{"at": 1000.0 + 2 * number, "response": str(number)} for number in range(4)]
    recording.write_bytes(b"\n".join(map(encode, [*lines, {"finish_reason": "stop", "end_of_stream": True}])))
    for speed, pause in ((1, 2.0), (10, 0.2), ("max", 0.0), (0.5, 4.0)):
        async with aclosing(
            await open_provider("replay", "again", {"recording": str(recording), "speed": speed})
        ) as replay:
            began, came = time(), list[float]()
            async for each in replay.on_request(TextCompletionRequest(prompt="whatever", streaming=True)):
                if each.response:
                    came.append(time() - began)
            assert came == pytest.approx([number * pause for number in range(4)])


async def test_a_command_shows_a_stream_again_with_its_pauses() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, ask_native("3"))
        it.step(1)
        await reader.until(b"0 ")
        await asyncio.sleep(1.5)
        it.step(2)
        await reader.until_end()
        url, time = str(it.other._base_url), asyncio.get_running_loop().time
        for speed, least in (("max", 0.0), ("1", 1.4)):
            began = time()
            done = await ran("tg-replay", reader.name, "--speed", speed, "-u", url)
            assert (done.code, done.out) == (0, "0 1 2 \n")
            assert time() - began >= least


async def test_the_answer_of_an_agent_is_shown_again() -> None:
    async with open_agent_pair(ScriptedAgent()) as (one, other), AsyncExitStack() as stack:
        reader = await begin(stack, one, ("api/v1/agent", {"question": "Q", "streaming": True}))
        await reader.until_end()
        done = await ran("tg-replay", reader.name, "--speed", "max", "-u", str(other._base_url))
        assert (done.code, done.out) == (0, "It is 5.\n")


async def test_a_record_says_when_it_was_stored_and_a_running_stream_goes_on() -> None:
    async with open_pair() as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, ask_native("2"))
        it.step(1)
        await reader.until(b"0 ")
        path, lines = f"v1/streams/{reader.name}", list[dict[str, Any]]()
        async with asyncio.timeout(DEADLINE), it.other.get(path, params={"form": "records"}) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    lines.append(json.loads(line[6:]))
                    it.step(1)
        assert [line.get("response") or "" for line in lines][:2] == ["0 ", "1 "]
        assert lines[-1]["end_of_stream"] is True
        times = [line["at"] for line in lines if "at" in line]
        assert times == sorted(times)
        assert times


async def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    for content in (
        None,
        b"",
        b"no JSON",
        b'{"response":"a"}\n',
        encode({"chunk_type": "answer", "end_of_dialog": True}),
    ):
        if content is not None:
            recording.write_bytes(content)
        with pytest.raises(BadRequest, match=r"recording|JSON"):
            await open_provider("replay", "again", {"recording": str(recording)})


async def test_a_recording_of_which_records_are_missing_says_so() -> None:
    async with open_pair(limits=Limits(part_bytes=300)) as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, ask_native("50"))
        it.step(50)
        await reader.until_end()
        done = await ran("tg-replay", reader.name, "--speed", "max", "-u", str(it.other._base_url))
        assert done.code == 1
        assert "too many to be kept" in done.err


async def test_another_keys_stream_is_unknown_to_all_ways_of_reading() -> None:
    keys = tuple(ApiKey(name=name, sha256=digest_of(name)) for name in ("one", "other"))
    bearer = {each.name: {"Authorization": f"Bearer {token_of(each.name)}"} for each in keys}
    async with open_pair(GatewayConfig(port=0, drain=0.05, auth="on", keys=keys)) as it, AsyncExitStack() as stack:
        reader = await begin(stack, it.one, ask_native("1"), **bearer["one"])
        it.step(1)
        await reader.until_end()
        for query in ({"form": "records"}, {"offset": "-1", "live": "sse"}, {"offset": "now", "live": "long-poll"}):
            for name, key, status in (
                (reader.name, "one", 204 if query.get("offset") == "now" else 200),
                (reader.name, "other", 404),
                (f"{reader.name[:-4]}0000", "one", 404),
            ):
                async with it.other.get(f"v1/streams/{name}", params=query, headers=bearer[key]) as response:
                    assert response.status == status, (query, key)


async def test_another_form_is_refused() -> None:
    async with open_pair() as it, it.one.get("v1/streams/ks-0-00", params={"form": "foo"}) as response:
        assert response.status == 400
