"""Every kind of tool, called by an agent: functions, prompts, models and services of one's own on the bus."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from typing_extensions import override

from tests.fakes.turns_llm import TurnsLlm
from tests.flow.agent_dialog import BASE, pipeline, tell
from tests.flow.agent_turns import DONE, call, observed, observed_in, refusal
from tests.installed_package import install_package
from tg_base.bus import Bus
from tg_base.protocol import Route
from tg_base.runtime import running
from tg_base.server import Processor, Service
from tg_schema.errors import BadRequest, NotFound
from tg_schema.service_spec import TOOL
from tg_schema.tool import ToolRequest, ToolResponse
from tg_schema.topics import Topics, resolve_topic


def python(name: str) -> str:
    return f'\n[tools.{name}]\nkind = "python"\noptions.function = "tests.fakes.tools:{name}"\n'


async def test_functions_of_every_kind(tmp_path: Path) -> None:
    config = python("add") + python("shout") + python("count") + python("made")
    seen = await observed(
        tmp_path, config, call("add", a=1), call("shout", text="hey"), call("count", to=2), call("made", at=[1, 2])
    )
    assert seen == ["2", "HEY", "0 1 ", '{"at":[1,2],"when":null}']


async def test_a_function_that_there_is_not(tmp_path: Path) -> None:
    for function in ("tests.fakes.tools:nope", "no.such.module:f", "no-entry-point"):
        error = await refusal(tmp_path, f'\n[tools.x]\nkind = "python"\noptions.function = "{function}"\n')
        assert isinstance(error, NotFound)
        assert f'tg.toml, line 11: there is no function "{function}"' in error.message
    error = await refusal(tmp_path, '\n[tools.x]\nkind = "python"\noptions.function = "tests.fakes.tools:seen"\n')
    assert "is not a function" in error.message
    error = await refusal(tmp_path, python("loose"))
    assert 'the parameter "more" of the function cannot be given by name' in error.message


async def test_a_wrong_option_and_a_wrong_schema_have_their_place(tmp_path: Path) -> None:
    error = await refusal(tmp_path, '\n[tools.x]\nkind = "python"\noptions.functoin = "a:b"\n')
    assert isinstance(error, BadRequest)
    assert 'line 11: a tool of kind "python"' in error.message
    error = await refusal(tmp_path, python("add") + "arguments.properties.a.type = 'nope'\n")
    assert 'tg.toml, line 12: the arguments of the tool "add": not a valid JSON schema' in error.message


async def test_a_function_asks_for_values_of_its_types(tmp_path: Path) -> None:
    config = python("add") + "arguments = {}\n"
    (seen,) = await observed(tmp_path, config, call("add", a="x"))
    assert seen.startswith("error: the arguments do not fit")


PROMPTS = """
[prompts.templates.greet]
prompt = "Greet {{ who }}."
[tools.greet]
kind = "prompt"
description = "Greets."
[tools.ask]
kind = "text-completion"
options.system = "Be brief."
"""


async def test_prompts_and_models(tmp_path: Path) -> None:
    llm = TurnsLlm(call("greet", who="Ann"), ("Hello ", "Ann"), call("ask", prompt="why?"), ("because",), DONE)
    told = await tell(llm, tmp_path, BASE + PROMPTS)
    assert [content for kind, content in told.messages if kind == "observation"] == ["Hello Ann", "because"]
    assert llm.requests[1].prompt == "Greet Ann."
    assert (llm.requests[3].system, llm.requests[3].prompt) == ("Be brief.", "why?")
    assert told.records[-1].in_token == 50, "what tools cost is counted"


async def test_a_prompt_that_there_is_not_is_an_observation(tmp_path: Path) -> None:
    (seen,) = await observed(tmp_path, PROMPTS.replace("templates.greet", "templates.other"), call("greet", who="x"))
    assert seen.startswith('error: there is no template "greet"')


class Reversing(Service[ToolRequest, ToolResponse]):
    """A service of one's own."""

    spec = TOOL

    @override
    async def on_request(self, request: ToolRequest) -> AsyncGenerator[ToolResponse, None]:
        text = json.loads(request.parameters or "{}")["text"]
        if text == "bad":
            raise BadRequest("not this one")
        for letter in reversed(text):
            yield ToolResponse(text=letter, end_of_stream=False)
        yield ToolResponse(text="")


SERVICES = """
[tools.reverse]
kind = "service"
description = "Reverses."
timeout = 2
[tools.theirs]
kind = "service"
options = { request = "request:tg:reverse", response = "response:tg:reverse" }
"""


async def test_services_of_ones_own(tmp_path: Path) -> None:
    ours = Route("default", TOOL, Topics().request("default", "reverse"), Topics().response("default", "reverse"))
    llm = TurnsLlm(call("reverse", text="abc"), call("reverse", text="bad"), DONE)
    async with (
        pipeline(llm, tmp_path, BASE + SERVICES) as it,
        Processor(it.bus, Topics(), Reversing(), (ours,), grace=0.1),
    ):
        assert await observed_in(it) == ["cba", "error: not this one"]


async def test_a_service_of_the_predecessor(tmp_path: Path) -> None:
    request, response = resolve_topic("request:tg:reverse"), resolve_topic("response:tg:reverse")

    async def peer(bus: Bus) -> None:
        async with bus.subscribe(request, "peer") as deliveries:
            asked = await anext(deliveries)
            assert json.loads(asked.body) == {"name": "theirs", "parameters": '{"text":"abc"}'}
            body = b'{"error": null, "text": "cba", "object": ""}'
            await bus.publish(response, body, {"id": asked.properties["id"]})

    llm = TurnsLlm(call("theirs", text="abc"), DONE)
    async with pipeline(llm, tmp_path, BASE + SERVICES) as it, running(peer(it.bus)):
        assert await observed_in(it) == ["cba"]


async def test_entry_points_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path / "site", monkeypatch, "ours", "[tokengrid.tools]\nshout = tests.fakes.tools:shout\n")
    (seen,) = await observed(tmp_path, '\n[tools.shout]\nkind = "python"\n', call("shout", text="a"))
    assert seen == "A"
