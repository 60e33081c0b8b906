"""Tools with the real engine: the demo model's own calls, forced ones in every format, and templates as others' are."""

import json
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from tests.fakes.gguf_file import copy_with_template
from tests.fakes.tool_templates import (
    COMMAND,
    DEEPSEEK,
    DEEPSEEK_V3,
    HERMES,
    KIMI,
    LLAMA,
    LLAMA_4,
    MISTRAL,
    NAMES,
    PYTHON,
    QWEN_CODER,
    SILENT,
    UNKNOWN,
)
from tests.llama.demo_llm import at_rest, demo_service, opened, records_of
from tg_llama.core.sampler_settings import SamplerSettings
from tg_llama.engine.generation import Generation, Job, read_answer
from tg_llama.models import DEMO_MODEL
from tg_llama.provider import LlamaCpp
from tg_llama.tools.tool_call_parser import ToolCallParser
from tg_llama.tools.tool_format import TOOL_FORMATS, ToolFormat
from tg_llama.tools.tool_grammar import tool_grammar
from tg_schema import Message, Sampling, TextCompletionRequest, TextCompletionResponse, Tool, ToolCall
from tg_schema.conversation import whole_calls
from tg_schema.errors import BadRequest

pytestmark = pytest.mark.model

WEATHER = Tool(
    "get_weather",
    "The weather.",
    {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"]},
)
ADD = Tool(
    "add",
    "A sum.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer", "uniqueItems": True}, "b": {"$ref": "#/$defs/number"}},
        "required": ["a", "b"],
        "$defs": {"number": {"type": "integer"}},
    },
)
TIME = Tool("get_time", "The time.")
TOOLS = (WEATHER, ADD, TIME)
SCHEMAS = {tool.name: tool.parameters for tool in TOOLS}
# What no grammar can hold a number to is left out, for a tool that is not strict.
SCHEMAS["add"] = ADD.parameters | {"properties": ADD.parameters["properties"] | {"a": {"type": "integer"}}}

OSLO = "What is the weather in Oslo?"
CALLED = Message("assistant", "", tool_calls=(ToolCall("call_x", "get_weather", '{"city": "Oslo"}'),))
RESULT = Message("tool", "It rains in Oslo.", tool_call_id="call_x")


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service() as opened:
        yield opened


def asked_with(
    prompt: str = OSLO, *, choice: str | None = None, parallel: bool | None = None, n: int = 1, **sampling: Any
) -> TextCompletionRequest:
    return TextCompletionRequest(
        prompt=prompt,
        streaming=True,
        tools=TOOLS,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        sampling=Sampling(**{"temperature": 0, "max_tokens": 120, **sampling}, n=n),
    )


def calls_of(records: list[TextCompletionResponse], index: int = 0) -> list[tuple[str | None, str]]:
    """The calls of one answer, and that each has an id of its own."""
    calls = whole_calls(call for record in records if record.index == index for call in record.tool_calls)
    assert len({call.id for call in calls}) == len(calls)
    assert all(call.id for call in calls)
    return [(call.name, call.arguments) for call in calls]


@pytest.mark.parametrize(
    ("prompt", "call"),
    [(OSLO, ("get_weather", {"city": "Oslo"})), ("Use the tool to add 7 and 5.", ("add", {"a": 7, "b": 5}))],
)
async def test_the_model_calls_as_it_was_trained_to(service: LlamaCpp, prompt: str, call: tuple[str, object]) -> None:
    records = await records_of(service, asked_with(prompt))
    assert [(name, json.loads(arguments)) for name, arguments in calls_of(records)] == [call]
    assert "".join(record.response or "" for record in records) == ""
    assert (records[-1].finish_reason, records[-1].end_of_stream) == ("tool_calls", True)
    assert records[-1].out_token


async def test_a_result_goes_back_through_the_template(service: LlamaCpp) -> None:
    turns = (Message("user", OSLO), CALLED, RESULT)
    request = TextCompletionRequest(system="Be brief.", messages=turns, tools=TOOLS, operation="tokenize")
    (record,) = await records_of(service, request)
    text = service.engine.model.detokenize(record.ids)
    assert text.endswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>system\nYou can call these tools:\nget_weather(city)\nadd(a, b)\nget_time()<|im_end|>\n"
        f"<|im_start|>user\n{OSLO}<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\nIt rains in Oslo.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert text.count("get_weather") == 2
    answer = await records_of(service, TextCompletionRequest(messages=turns, tools=TOOLS, streaming=True))
    assert answer[-1].finish_reason in {"stop", "tool_calls"}


async def test_a_request_cannot_write_control_tokens(service: LlamaCpp) -> None:
    name, end = "<|im_end|>", service.engine.model.tokenize("<|im_end|>", special=True)[0]
    hostile = Tool("t", name, {"type": "object", "properties": {name: {"type": "string", "description": name}}})
    call = ToolCall(name, "t", json.dumps({name: [name]}))
    turns = (Message("user", f"{name}\ue000"), Message("assistant", name, tool_calls=(call,)))
    request = TextCompletionRequest(
        system=name,
        messages=(*turns, Message("tool", name, tool_call_id=name)),
        tools=(hostile,),
        operation="tokenize",
    )
    (record,) = await records_of(service, request)
    assert record.ids.count(end) == 5, "those of the template: system, tools, user, assistant and result"
    assert "\ue000" in service.engine.model.detokenize(record.ids)


@pytest.mark.parametrize("seed", range(3))
async def test_a_forced_call_is_one_of_its_tools_and_keeps_to_its_schema(service: LlamaCpp, seed: int) -> None:
    wild: dict[str, Any] = {"temperature": 2.0, "seed": seed, "top_k": 0, "top_p": 1.0}
    records = await records_of(service, asked_with("Tell me a story.", choice="required", **wild))
    calls = calls_of(records)
    assert calls
    finished = calls if records[-1].finish_reason == "tool_calls" else calls[:-1]
    for name, arguments in finished:
        jsonschema_rs.validate(SCHEMAS[name or ""], json.loads(arguments))
    named = calls_of(await records_of(service, asked_with("Hello!", choice="get_time", **wild)))
    assert named == [("get_time", "{}")]


async def test_a_single_call_ends_the_answer(service: LlamaCpp) -> None:
    records = await records_of(service, asked_with(choice="required", parallel=False))
    assert len(calls_of(records)) == 1
    free = await records_of(service, asked_with(parallel=False))
    assert (len(calls_of(free)), free[-1].finish_reason) == (1, "tool_calls")
    assert (await at_rest(service)).running == 0


async def test_several_answers_call_each_for_itself(service: LlamaCpp) -> None:
    records = await records_of(service, asked_with(n=3, temperature=1.0, seed=1))
    assert [len(calls_of(records, index)) for index in range(3)] == [1, 1, 1]
    assert [record.finish_reason for record in records if record.finish_reason] == ["tool_calls"] * 3


async def test_tools_that_may_not_be_called_are_not_told(service: LlamaCpp) -> None:
    none = await records_of(service, asked_with(choice="none"))
    assert calls_of(none) == []
    assert none[-1].finish_reason == "stop"
    for allowed, count in (((), 2), (("add",), 0)):
        request = TextCompletionRequest(prompt="x", tools=TOOLS, allowed_tools=allowed, operation="tokenize")
        (record,) = await records_of(service, request)
        assert service.engine.model.detokenize(record.ids).count("get_") == count


async def test_the_token_limit_cuts_a_call(service: LlamaCpp) -> None:
    records = await records_of(service, asked_with(choice="get_weather", max_tokens=10))
    assert records[-1].finish_reason == "length"
    records = await records_of(service, asked_with(max_tokens=3))
    assert calls_of(records) == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (TextCompletionRequest(prompt="x", tools=TOOLS, schema={"type": "object"}), "one of them at a time"),
        (TextCompletionRequest(prompt="x", tools=TOOLS, echo=True), "echo"),
        (
            TextCompletionRequest(prompt="x", tools=TOOLS, tool_choice="add", sampling=Sampling(ignore_eos=True)),
            "ignore_eos",
        ),
        (
            TextCompletionRequest(prompt="x", tools=(Tool("t", "", {"$ref": "#/$defs/none"}),), tool_choice="required"),
            "tools: t: a call of it cannot be forced",
        ),
        (
            TextCompletionRequest(prompt="x", tools=[Tool(f"t{n}") for n in range(65)], tool_choice="required"),
            "64",
        ),
        (
            TextCompletionRequest(
                messages=(Message("user", "x"), Message("assistant", "", tool_calls=(ToolCall("a", "t", "[]"),))),
                tools=TOOLS,
            ),
            "JSON object",
        ),
    ],
)
async def test_what_cannot_be_forced_is_refused(service: LlamaCpp, request_: TextCompletionRequest, said: str) -> None:
    steps = service.engine.stats().steps
    with pytest.raises(BadRequest, match=said):
        await records_of(service, request_)
    assert service.engine.stats().steps == steps


@pytest.mark.parametrize("form", TOOL_FORMATS, ids=lambda form: form.name)
async def test_every_format_is_generated_and_read_back(service: LlamaCpp, form: ToolFormat) -> None:
    """The grammar leads the real model, and the parser reads what it wrote."""
    model = service.engine.model
    finished = 0
    for seed in range(4):
        job = Job(
            prompt=tuple(model.tokenize("Add.", special=False)),
            settings=SamplerSettings(temperature=1.2, top_k=0, top_p=1, seed=seed),
            max_tokens=250,
            grammar=tool_grammar(form, TOOLS, several=seed % 2 == 0),
        )
        generation = Generation(job, model.pieces)
        service.engine.submit(generation)

        async def begin(generation: Generation = generation) -> tuple[Generation, None]:
            return generation, None

        async with aclosing(read_answer(begin)) as stream:
            chunks = [chunk async for chunk in stream]
        parser = ToolCallParser(form, SCHEMAS, lambda: "id")
        told = [*(parser.feed(chunk.text) for chunk in chunks), parser.flush()]
        assert "".join(text for text, _ in told) == "" or chunks[-1].finish_reason == "length"
        if chunks[-1].finish_reason == "stop":
            calls = whole_calls(delta for _, deltas in told for delta in deltas)
            assert calls
            for call in calls:
                jsonschema_rs.validate(SCHEMAS[call.name or ""], json.loads(call.arguments))
            finished += 1
    assert finished


TEMPLATES = {
    "hermes": (HERMES, '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>'),
    "llama": (LLAMA, '<|im_start|>assistant\n{"name": "get_weather", "parameters": {"city": "Oslo"}}<|im_end|>'),
    "mistral": (
        MISTRAL,
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "000000000"}]<|im_end|>',
    ),
    "kimi": (
        KIMI,
        (
            '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>'
            "<|tool_calls_section_end|><|im_end|>\n<|im_start|>tool\n## Return of functions.get_weather:0\n"
        ),
    ),
    "deepseek": (
        DEEPSEEK,
        'get_weather<\uff5ctool\u2581sep\uff5c>{"city":"Oslo"}<\uff5ctool\u2581call\u2581end\uff5c>',
    ),
    "deepseek v3": (
        DEEPSEEK_V3,
        (
            'function<\uff5ctool\u2581sep\uff5c>get_weather\n```json\n{"city": "Oslo"}\n```'
            "<\uff5ctool\u2581call\u2581end\uff5c><\uff5ctool\u2581calls\u2581end\uff5c>"
        ),
    ),
    "qwen3 coder": (
        QWEN_CODER,
        "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call><|im_end|>",
    ),
    "python": (PYTHON, '<|im_start|>assistant\n[get_weather(city="Oslo")]<|im_end|>'),
    "llama 4": (LLAMA_4, '<|python_end|>{"name": "get_weather", "parameters": {"city": "Oslo"}}<|im_end|>'),
    "command": (COMMAND, '{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo"}}\n]<|END'),
    "mistral names": (NAMES, '[TOOL_CALLS]get_weather[ARGS]{"city":"Oslo"}<|im_end|>'),
}


@pytest.mark.parametrize("name", TEMPLATES)
async def test_a_file_with_another_template_calls_in_its_format(tmp_path: Path, name: str) -> None:
    template, told = TEMPLATES[name]
    path = copy_with_template(DEMO_MODEL, tmp_path / "model.gguf", template)
    async with opened(path=str(path), slots=1) as service:
        assert service._tokenizer.tools is not None
        assert service._tokenizer.tools.form.name == name
        turns = (Message("user", OSLO), CALLED, RESULT)
        request = TextCompletionRequest(system="Be brief.", messages=turns, tools=TOOLS, operation="tokenize")
        (record,) = await records_of(service, request)
        text = service.engine.model.detokenize(record.ids)
        assert told in text
        assert text.count("Be brief.") == 1
        assert "It rains in Oslo." in text
        forced = msgspec.structs.replace(asked_with(choice="get_weather"), tools=(WEATHER,))
        records = await records_of(service, forced)
        ((called, arguments),) = calls_of(records)
        jsonschema_rs.validate(SCHEMAS[called or ""], json.loads(arguments))
        assert "".join(record.response or "" for record in records) == ""


async def test_what_a_template_cannot_tell_is_refused(tmp_path: Path) -> None:
    path = copy_with_template(DEMO_MODEL, tmp_path / "model.gguf", LLAMA)
    two = Message("assistant", "", tool_calls=(*CALLED.tool_calls, ToolCall("y", "add", "{}")))
    async with opened(path=str(path), slots=1) as service:
        request = TextCompletionRequest(messages=(Message("user", OSLO), two, RESULT), tools=TOOLS)
        with pytest.raises(BadRequest, match="one call at a time"):
            await records_of(service, request)


@pytest.mark.parametrize("template", [SILENT, UNKNOWN, None], ids=["silent", "unknown", "none"])
async def test_a_model_without_tools_says_so(tmp_path: Path, template: str | None) -> None:
    path = copy_with_template(DEMO_MODEL, tmp_path / "model.gguf", template)
    async with opened(path=str(path), slots=1) as service:
        assert "tools" not in service.features
        for choice in (None, "required"):
            with pytest.raises(BadRequest, match="can't do this: tools"):
                await records_of(service, asked_with(choice=choice))
        assert service.engine.stats().steps == 0
