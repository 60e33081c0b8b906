"""The prompt service on a real bus, over a scripted model: text, objects, mistakes, edits, cancels."""

import asyncio
import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog

from tests.fakes.answers_llm import AnswersLlm
from tests.fakes.counting_llm import SteppedLlm, release
from tests.fakes.scripted_llm import ScriptedLlm
from tests.fakes.stream_server import stream_server
from tests.fakes.typed_clients import PromptClient
from tests.flow.serve_context import context_of
from tests.until import until
from tests.within import within
from tg_base.bus import Bus
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor, prompt_request
from tg_base.config import ConfigWatcher
from tg_base.llm import LlmChunk, LlmService
from tg_base.server import Processor
from tg_flow.prompt import PromptKind
from tg_schema import FinishReason, PromptRequest, PromptResponse, TgError
from tg_schema.errors import BadRequest, NotFound, SchemaViolation
from tg_schema.topics import Topics

TOPICS = Topics()
CONFIG = """
[models.m]
provider = "openai"

[flows.default]
text-completion = { model = "m" }
prompt = {}

[prompts]
system = "Be {{ manner | default('brief') }}."

[prompts.templates.count]
prompt = "{{ n }}"

[prompts.templates.person]
prompt = "Who is {{ who }}?"
response_type = "json"

[prompts.templates.person.schema]
type = "object"
required = ["name"]
properties.name.type = "string"

[prompts.templates.anything]
prompt = "Anything."
response_type = "json"

[prompts.templates.people]
prompt = "Who?"
response_type = "jsonl"
schema = { type = "object", required = ["name"] }
"""


@dataclass
class Pipeline:
    bus: Bus
    file: Path
    client: PromptClient

    async def responses(self, template: str, variables: dict[str, Any], *, streaming: bool) -> list[PromptResponse]:
        async with self.client.stream(prompt_request(template, variables, streaming=streaming)) as responses:
            return [response async for response in responses]


@pytest.fixture
async def bus() -> AsyncIterator[Bus]:
    async with aclosing(MemoryBus()) as bus:
        yield bus


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "tg.toml"
    file.write_text(CONFIG)
    return file


@asynccontextmanager
async def pipeline(bus: Bus, file: Path, llm: LlmService, *, poll: float = 0.01) -> AsyncIterator[Pipeline]:
    async with AsyncExitStack() as stack:
        config_file = await stack.enter_async_context(ConfigWatcher(file, poll=poll))
        routes = config_file.config.routes("text-completion")
        await stack.enter_async_context(Processor(bus, TOPICS, llm, routes, grace=0.1))
        await stack.enter_async_context(PromptKind().serve(context_of(config_file, bus)))
        requestor = await stack.enter_async_context(Requestor(bus, TOPICS))
        yield Pipeline(bus, file, PromptClient(requestor, config_file.config.routes("prompt")[0]))


async def test_a_text_template_streams(bus: Bus, file: Path) -> None:
    llm = SteppedLlm()
    async with pipeline(bus, file, llm) as it:
        async with it.client.stream(prompt_request("count", {"n": 3}, streaming=True)) as responses:
            for number in range(2):
                llm.step.release()
                response = await anext(responses)
                assert response == PromptResponse(text=f"{number} ", model="counting")
                assert llm.generated == number + 1
            llm.step.release()
            rest = [response async for response in responses]
        assert "".join(response.text or "" for response in rest) == "2 "
        last = rest[-1]
        assert (last.end_of_stream, last.in_token, last.out_token) == (True, 7, 3)
        assert (last.model, last.finish_reason) == ("counting", "stop")
        assert (llm.requests[0].system, llm.requests[0].prompt) == ("Be brief.", "3")
        assert llm.requests[0].streaming is True


async def test_a_text_template_comes_whole(bus: Bus, file: Path) -> None:
    async with pipeline(bus, file, ScriptedLlm("a ", "b")) as it:
        assert await it.responses("count", {"n": 3}, streaming=False) == [
            PromptResponse(
                text="a b", end_of_stream=True, in_token=11, out_token=2, model="scripted", finish_reason="stop"
            )
        ]


async def test_a_whole_text_is_all_of_it_though_the_model_thought_in_between(bus: Bus, file: Path) -> None:
    steps = [LlmChunk("a "), LlmChunk(reasoning="hm"), LlmChunk("b", finish_reason="stop"), LlmChunk(out_token=2)]
    async with pipeline(bus, file, AnswersLlm(steps)) as it:
        (response,) = await it.responses("count", {"n": 3}, streaming=False)
    assert (response.text, response.out_token, response.finish_reason) == ("a b", 2, "stop")


async def test_variables_reach_both_texts_as_they_are(bus: Bus, file: Path) -> None:
    llm = ScriptedLlm("ok")
    async with pipeline(bus, file, llm) as it:
        await it.client.request("count", {"n": "{{ 7 * 7 }}\n\u00e9", "manner": ["a", 1]})
        assert (llm.requests[0].system, llm.requests[0].prompt) == ('Be ["a",1].', "{{ 7 * 7 }}\n\u00e9")
        assert llm.requests[0].response_format is None


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    "pieces",
    [
        ('{"name": ', '"Ann", "n": 1.5}'),
        ('```json\n{"name": "Ann", "n": 1.5}\n```',),
        ('Here it is:\n```\n{"name": "Ann",\n "n": 1.5}\n```\nAnything else?',),
        ('\n  {"name": "Bob", "name": "Ann", "n": 1.5} \n',),
    ],
)
async def test_a_json_template_gives_one_object_in_one_response(
    bus: Bus, file: Path, pieces: tuple[str, ...], streaming: bool
) -> None:
    llm = ScriptedLlm(*pieces)
    async with pipeline(bus, file, llm) as it:
        (response,) = await it.responses("person", {"who": "she"}, streaming=streaming)
        assert response.object == '{"name":"Ann","n":1.5}'
        assert response.text is None
        assert response.end_of_stream is True
        assert (response.in_token, response.out_token, response.model) == (11, len(pieces), "scripted")
        asked = llm.requests[0]
        assert (asked.response_format, asked.streaming, asked.prompt) == (None, False, "Who is she?")
        assert asked.schema == {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("pieces", "finish_reason", "words"),
    [
        ("I do not know.", "stop", "the model's answer is not valid JSON; ask again"),
        ("", "stop", "is not valid JSON"),
        ('{"name": "An', "length", "is not valid JSON; it was cut at the most tokens allowed"),
        ("[" * 100_000, "stop", "is not valid JSON"),
        ('{"name": NaN}', "stop", "is not valid JSON"),
        ('{"name": "Ann"} {}', "stop", "is not valid JSON"),
        ('{"name": 1}', "stop", 'does not satisfy the request\'s schema: name breaks the rule "type"'),
        ('{"secret": 1}', "stop", 'the object breaks the rule "required"'),
        ("[]", "stop", 'the object breaks the rule "type"'),
    ],
)
async def test_an_invalid_object_is_one_typed_error(
    bus: Bus, file: Path, pieces: str, finish_reason: FinishReason, words: str
) -> None:
    async with pipeline(bus, file, ScriptedLlm(pieces, finish_reason=finish_reason)) as it:
        for streaming in (True, False):
            with pytest.raises(SchemaViolation) as failed:
                await it.responses("person", {"who": "she"}, streaming=streaming)
            assert words in failed.value.message
            assert "secret" not in failed.value.message


@pytest.mark.parametrize("text", ["3", '"a"', "null", "[1]", '{"a": {}}'])
async def test_without_a_schema_any_json_will_do(bus: Bus, file: Path, text: str) -> None:
    async with pipeline(bus, file, ScriptedLlm(text)) as it:
        assert await it.client.request("anything", {}) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    ['{"name":"a"}\n\n {"name": "b"}\r\n', '```jsonl\n{"name":"a"}\n{"name":"b"}\n```', '[{"name":"a"}, {"name":"b"}]'],
)
async def test_a_jsonl_template_gives_a_list_of_objects(bus: Bus, file: Path, text: str) -> None:
    llm = ScriptedLlm(text)
    async with pipeline(bus, file, llm) as it:
        (response,) = await it.responses("people", {}, streaming=True)
        assert response.object == '[{"name":"a"},{"name":"b"}]'
        assert response.end_of_stream is True
        assert llm.requests[0].response_format is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name":"a"}\nand\n{"name":"b"}', "line 2 of the model's answer is not valid JSON"),
        ('{"name":"a"}\n{"nam":"b"}', "line 2 of the model's answer does not satisfy the template's schema"),
        ('["name"]', "element 1 of the model's answer is not a JSON object"),
        ('{"name":"a"}\n["name"]', "line 2 of the model's answer is not a JSON object"),
        ('[{"name":"a"}, {"nam":"b"}]', "element 2 of the model's answer does not satisfy"),
        ('[{"name":"a"}', "the model's answer is not valid JSON"),
        ('{"name":"a"}\n{"na', "line 2"),
    ],
)
async def test_a_bad_line_is_an_error_and_never_left_out(bus: Bus, file: Path, text: str, words: str) -> None:
    async with pipeline(bus, file, ScriptedLlm(text)) as it:
        with pytest.raises(SchemaViolation, match=words):
            await it.client.request("people", {})


@pytest.mark.parametrize(
    ("request_", "kind", "words"),
    [
        (PromptRequest(), BadRequest, "id is missing"),
        (PromptRequest(id="nope"), NotFound, 'no template "nope"; known are anything, count, people, person'),
        (PromptRequest(id="count"), BadRequest, 'template "count", line 1: the variable "n" is missing'),
        (PromptRequest(id="count", terms={"n": "x"}), BadRequest, 'the variable "n" is not JSON text'),
        (PromptRequest(id="count", terms={"n": "1", "m": "1"}), BadRequest, 'no variable "m"; it has manner, n'),
        (PromptRequest(id="count", terms={"n": '""'}), BadRequest, "renders an empty prompt"),
    ],
)
async def test_a_wrong_request_never_reaches_the_model(
    bus: Bus, file: Path, request_: PromptRequest, kind: type[TgError], words: str
) -> None:
    llm = ScriptedLlm("x")
    async with pipeline(bus, file, llm) as it:
        for streaming in (True, False):
            with pytest.raises(kind, match=words):
                await it.client.call(PromptRequest(id=request_.id, terms=request_.terms, streaming=streaming))
        assert llm.requests == []


async def test_an_error_of_the_model_passes_through(bus: Bus, file: Path) -> None:
    async with pipeline(bus, file, ScriptedLlm("x", finish_reason=None)) as it:
        with pytest.raises(TgError) as failed:
            await it.responses("count", {"n": 1}, streaming=True)
        assert failed.value.type == "incomplete-stream"


@pytest.mark.parametrize("template", ["count", "anything"])
async def test_leaving_before_a_whole_answer_stops_the_model(bus: Bus, file: Path, template: str) -> None:
    llm = SteppedLlm()
    edit(file, '"Anything."', '"1000"')
    async with pipeline(bus, file, llm) as it:
        variables = {"n": 1000} if template == "count" else {}
        async with it.client.stream(prompt_request(template, variables, streaming=False)):
            await llm.started.wait()
        await within(1, llm.stopped.wait())
        assert llm.generated == 0


def edit(file: Path, old: str, new: str) -> None:
    """The configuration of all these tests, with one thing changed."""
    assert old in CONFIG
    file.write_text(CONFIG.replace(old, new))


def reasons(logs: list[MutableMapping[str, Any]], event: str) -> list[str]:
    return [str(entry.get("reason")) for entry in logs if entry["event"] == event]


async def prompts_until(llm: ScriptedLlm, client: PromptClient, text: str, seconds: float) -> None:
    """Ask until the model is asked exactly that."""

    async def ask() -> None:
        while not llm.requests or llm.requests[-1].prompt != text:
            await client.request("count", {"n": 1})

    await within(seconds, ask())


async def test_an_edited_template_is_used_within_a_second(bus: Bus, file: Path) -> None:
    llm = ScriptedLlm("x")
    async with pipeline(bus, file, llm, poll=0.2) as it:
        await it.client.request("count", {"n": 1})
        assert llm.requests[-1].prompt == "1"
        edit(file, '"{{ n }}"', '"{{ n }}, edited"')
        await prompts_until(llm, it.client, "1, edited", 1 if bus.in_process else 20)


async def test_a_broken_edit_is_refused_and_the_old_template_stays(bus: Bus, file: Path) -> None:
    llm = ScriptedLlm("x")
    with structlog.testing.capture_logs() as logs:
        async with pipeline(bus, file, llm) as it:
            edit(file, '"{{ n }}"', '"""\n{{ n }}\n{% if n %}"""')
            await until(lambda: reasons(logs, "config.refused"))
            assert reasons(logs, "config.refused")[0].startswith(f'{file}, line 15: template "count", its line 2: ')
            await it.client.request("count", {"n": 1})
            assert llm.requests[-1].prompt == "1"
            edit(file, '"{{ n }}"', '"{{ n }}, mended"')
            await prompts_until(llm, it.client, "1, mended", 20)


async def test_a_running_stream_outlives_an_edit(bus: Bus, file: Path) -> None:
    llm = SteppedLlm(steps=1)
    with structlog.testing.capture_logs() as logs:
        async with pipeline(bus, file, llm) as it:
            async with it.client.stream(prompt_request("count", {"n": 3}, streaming=True)) as responses:
                await anext(responses)
                edit(file, "templates.count", "templates.renamed")
                await until(lambda: reasons(logs, "config.in_force"))
                release(llm.step, 3)
                assert "".join([response.text or "" async for response in responses]) == "1 2 "
            with pytest.raises(NotFound, match="known are anything, people, person, renamed"):
                await it.client.request("count", {"n": 3})


async def test_a_reference_to_another_document_is_never_followed(file: Path, bus: Bus) -> None:
    visits = 0

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()

    async with stream_server(visited) as port:
        for schema in (
            f'{{ "$ref" = "http://127.0.0.1:{port}/person.json" }}',
            f'{{ "$schema" = "http://127.0.0.1:{port}/meta.json" }}',
            f'{{ type = "object", properties.a."$dynamicRef" = "http://127.0.0.1:{port}/a.json" }}',
            f'{{ "$id" = "http://127.0.0.1:{port}/root.json", properties.a."$ref" = "other.json" }}',
            '{ "$ref" = "file:///etc/hostname" }',
        ):
            edit(file, '{ type = "object", required = ["name"] }', schema)
            with pytest.raises(BadRequest, match=r"tg\.toml, line 31: not a valid JSON schema"):
                await asyncio.to_thread(lambda: asyncio.run(enter(file)))
        assert visits == 0
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        await until(lambda: visits)


async def enter(file: Path) -> None:
    """Start and stop the prompt service, on a loop of its own."""
    async with aclosing(MemoryBus()) as bus, PromptKind().serve(context_of(ConfigWatcher(file), bus)):
        pass
