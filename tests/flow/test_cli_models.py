"""tg-models, and what tg-invoke-llm says of the model: its name, its sampling, a schema, images, earlier turns."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.recorded_llm import SEVERAL, RecordedLlm
from tests.fakes.scripted_llm import ScriptedLlm
from tests.flow.command import ran
from tests.flow.open_gateway import Opened, open_gateway
from tg_schema import ImagePart, Message, Sampling, TextPart

LLM = "tg-invoke-llm"
PNG = b"\x89PNG\r\n\x1a\n rest"
TURNS = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@pytest.fixture
def model() -> RecordedLlm:
    return RecordedLlm(*SEVERAL)


@pytest.fixture
async def opened(model: RecordedLlm) -> AsyncIterator[Opened]:
    async with open_gateway(instead=model, listed=True) as opened:
        yield opened


async def test_the_models_as_a_table_and_as_json(opened: Opened) -> None:
    done = await ran("tg-models", "-u", opened.gateway.url)
    features = ", ".join(sorted(RecordedLlm.features))
    expected = f"MODEL     FLOW     FEATURES\ncounting  default  {features}\n"
    assert (done.code, done.out, done.err) == (0, expected, "")
    done = await ran("tg-models", "--json", TOKENGRID_URL=opened.gateway.url)
    assert [json.loads(line)["model"] for line in done.out.splitlines()] == ["counting"]


async def test_model_and_sampling(opened: Opened, model: RecordedLlm) -> None:
    done = await ran(LLM, "", "x", "-m", "counting", "--temperature=0", "--max-tokens=9", "-u", opened.gateway.url)
    assert (done.code, done.err) == (0, "")
    assert (model.requests[0].model, model.requests[0].sampling) == ("counting", Sampling(0.0, max_tokens=9))


async def test_a_model_that_is_nowhere(opened: Opened) -> None:
    async with open_gateway() as counting:
        done = await ran(LLM, "", "1", "-m", "nope", "-u", counting.gateway.url)
    assert (done.code, done.out) == (1, "")
    assert "no model of that name is served here; this flow serves counting" in done.err


async def test_images_and_earlier_turns(opened: Opened, model: RecordedLlm, tmp_path: Path) -> None:
    image, history = tmp_path / "image", tmp_path / "chat.json"
    image.write_bytes(PNG)
    history.write_text(json.dumps(TURNS))
    options = ["--image", str(image), "--history", str(history), "-u", opened.gateway.url]
    assert (await ran(LLM, "be brief", "what?", *options)).code == 0
    (request,) = model.requests
    shown = ImagePart(media_type="image/png", data=base64.b64encode(PNG).decode())
    assert request.messages == (
        Message("user", "a"),
        Message("assistant", "b"),
        Message("user", (TextPart("what?"), shown)),
    )
    assert (request.system, request.prompt) == ("be brief", None)


@pytest.mark.parametrize(("said", "code", "out"), [('{"a":1}', 0, '{"a":1}\n'), ('{"b":1}', 1, "")])
async def test_a_schema(tmp_path: Path, said: str, code: int, out: str) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["a"]}')
    async with open_gateway(instead=ScriptedLlm(said)) as opened:
        done = await ran(LLM, "", "x", "--schema", str(schema), "--no-streaming", "-u", opened.gateway.url)
    assert (done.code, done.out) == (code, out)


@pytest.mark.parametrize(
    ("option", "content", "sentence"),
    [
        ("--image", b"text", "is no image that models read: give a PNG, JPEG, GIF or WebP file"),
        ("--schema", b"[]", "is no JSON schema: wrong field: Expected `object`, got `array`"),
        ("--schema", b"\xff", "is no JSON schema: not valid JSON"),
        ("--history", b"{}", "is no JSON list of messages: wrong field: Expected `array`, got `object`"),
        ("--history", b'[{"role": "robot"}]', "Invalid enum value 'robot'"),
        ("--history", None, "does not exist"),
    ],
)
async def test_a_file_that_is_none_of_its_kind(
    tmp_path: Path, option: str, content: bytes | None, sentence: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    done = await ran(LLM, "", "x", option, str(file))
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err


@pytest.mark.parametrize("option", [("--temperature", "-1"), ("--max-tokens", "0"), ("--max-tokens", "many")])
async def test_a_senseless_number(option: tuple[str, str]) -> None:
    done = await ran(LLM, "", "x", *option)
    assert done.code == 2
    assert option[0] in done.err
