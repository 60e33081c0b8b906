"""The demo model in NumPy: what it answers, that llama.cpp answers the same, and that nothing is written for nobody."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.llama.demo_llm import STORY, asked, demo_service
from tg_llama.core import SamplerSettings
from tg_llama.demo import DemoModel
from tg_llama.demo_provider import SLOTS, Demo, DemoOptions
from tg_llama.engine import Generation, Job
from tg_llama.models import DEMO_MODEL
from tg_llama.native import Model
from tg_llama.provider import LlamaCpp
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.errors import BadRequest, ContextLengthExceeded, Internal

PULSAR = "What is Apache Pulsar?"
TEXTS = (
    "",
    "Hello, world!  It's 2 + 3 = 5; isn't it?\n\n  Two\tspaces   ",
    "a" * 300,
    "naïve Grüße, 北京, 日本語, Привет, العربية, 😀👍🏽, x² + ½",
    "<|im_start|>user <tool_call>{}</tool_call> <|im_end|><think>",
    "_under_score_ __init__ 'll 'LL we're\r\n",
    "\u00a0\u2003\x00\x7f",
)


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[Demo]:
    service = await Demo.open("tinydemo", DemoOptions(tries=1, **options))
    try:
        yield service
    finally:
        await service.aclose()


async def whole(service: Demo | LlamaCpp, request: TextCompletionRequest) -> TextCompletionResponse:
    (record,) = TextCompletionResponse.join([record async for record in service.on_request(request)])
    return record


async def text_of(service: Demo | LlamaCpp, request: TextCompletionRequest) -> str:
    return (await whole(service, request)).response or ""


@pytest.fixture(scope="module")
def native() -> Iterator[LlamaCpp]:
    with demo_service() as service:
        yield service


@pytest.mark.model
@pytest.mark.parametrize("prompt", [PULSAR, "What is the capital of France?", "Count to 10.", "Who are you?", "2 + 3?"])
async def test_answers_as_llama_cpp_does(native: LlamaCpp, prompt: str) -> None:
    async with opened() as service:
        request = asked(prompt, system="You are a helpful assistant.", temperature=0, logprobs=0)
        own, other = await whole(service, request), await whole(native, request)
    assert [token.id for token in own.tokens] == [token.id for token in other.tokens]
    assert [token.logprob for token in own.tokens] == pytest.approx([token.logprob for token in other.tokens], abs=0.05)
    assert (own.response, own.in_token, own.out_token) == (other.response, other.in_token, other.out_token)
    assert (own.finish_reason, own.model) == (other.finish_reason, other.model)


@pytest.mark.model
@pytest.mark.parametrize("special", [True, False])
def test_cuts_texts_as_llama_cpp_does(*, special: bool) -> None:
    pairs = DemoModel()
    with closing(Model(DEMO_MODEL)) as model:
        for text in TEXTS:
            assert pairs.tokenize(text, special=special) == model.tokenize(text, special=special), text
        assert pairs.pieces == model.pieces
        assert pairs.end_tokens == model.end_tokens
        assert (pairs.begin, pairs.begin_text, pairs.end_text) == (model.begin, model.begin_text, model.end_text)
        assert pairs.chat_template == model.chat_template


@pytest.mark.parametrize("word", ["n" + 298 * "x" + "i", "0" + 298 * "7" + "1"])
def test_the_work_for_a_text_grows_with_its_length_alone(word: str) -> None:
    """That for a word grows with its square. So one without an end is cut, also where its pieces would merge."""
    pairs = DemoModel()
    assert pairs.tokenize(word * 2, special=False) == 2 * pairs.tokenize(word, special=False)


def test_runs_without_llama_cpp() -> None:
    code = """import asyncio, sys
sys.modules["llama_cpp"] = None
from tg_llama.demo_provider import Demo, DemoOptions
from tg_schema import TextCompletionRequest
async def ask():
    service = await Demo.open("tinydemo", DemoOptions(temperature=0))
    async for chunk in service.generate_content_stream(TextCompletionRequest(prompt="Count to 5.")):
        print(chunk.text, end="")
asyncio.run(ask())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.stderr) == ("1, 2, 3, 4, 5", "")


@pytest.mark.parametrize("raised", ["ModuleNotFoundError('numpy')", "RuntimeError('built for (X86_V2)')"])
def test_a_machine_that_cannot_load_numpy_is_told_what_to_do(raised: str, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(f"raise {raised}\n", "utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    serve = Path(sys.executable).with_name("tg-serve")
    check = (serve, "--check", "--provider", "demo", "--model", "tinydemo")
    done = subprocess.run(check, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("models.tinydemo: the demo model needs NumPy, which cannot be loaded here; run: pip ")
    assert done.stderr.count("\n") == 1


async def test_answers_side_by_side_are_those_that_each_would_be_alone() -> None:
    async with opened(temperature=0) as service:
        prompts = ["Count to 5.", PULSAR, "What is the capital of France?", "word " * 150] * 5
        alone = {prompt: await text_of(service, asked(prompt, max_tokens=20)) for prompt in set(prompts)}
        together = await asyncio.gather(*[text_of(service, asked(prompt, max_tokens=20)) for prompt in prompts])
    assert together == [alone[prompt] for prompt in prompts]


async def test_a_seed_repeats_an_answer_and_settings_change_it() -> None:
    async with opened() as service:
        seeded = [await whole(service, asked(STORY, seed=seed, max_tokens=40)) for seed in (7, 7, 8)]
        greedy = await text_of(service, asked(STORY, temperature=0, max_tokens=40))
        for settings in ({"top_k": 1}, {"top_p": 0.0}, {"temperature": 1e-6}, {"temperature": 1e-307}):
            assert await text_of(service, asked(STORY, max_tokens=40, **settings)) == greedy
        fresh = await text_of(service, asked(STORY, temperature=0, max_tokens=40, presence_penalty=2))
    assert [answer.seed for answer in seeded] == [7, 7, 8]
    assert seeded[0].response == seeded[1].response != seeded[2].response
    assert fresh != greedy


async def test_an_answer_ends_where_the_context_does_and_a_longer_prompt_is_refused() -> None:
    async with opened(temperature=0) as service:
        # It begins near the end: a token of a prompt takes no time beside one of an answer.
        answer = await whole(service, asked("word " * 2_000, presence_penalty=-2, frequency_penalty=-2))
        assert (answer.finish_reason, (answer.in_token or 0) + (answer.out_token or 0)) == ("length", 4096)
        for words in (5_000, 100_000):
            with pytest.raises(ContextLengthExceeded):
                await whole(service, asked("word " * words))


async def test_a_defect_in_one_answer_ends_no_other() -> None:
    # No request may ask for it: the checks before refuse what is no number.
    wanted = SamplerSettings(temperature=float("nan"), top_k=0, top_p=1, seed=0)
    async with opened() as service:
        job = Job(prompt=(300,), settings=wanted, max_tokens=4)
        service.engine.submit(generation := Generation(job, service.engine.model.pieces))
        with pytest.raises(Internal, match="failed in this answer"):
            await generation.read()
        assert await text_of(service, asked("Count to 5.", temperature=0)) == "1, 2, 3, 4, 5"


async def test_keeps_to_a_form() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}}, "required": ["city"]}
    async with opened() as service:
        for seed in range(4):
            request = asked("Name a city.", seed=seed, temperature=2)
            answer = await whole(service, msgspec.structs.replace(request, schema=schema))
            assert set(msgspec.json.decode(answer.response or "")) == {"city"}
        chosen = msgspec.structs.replace(asked("Which one?", temperature=0), choice=("red", "green"))
        assert await text_of(service, chosen) in {"red", "green"}
        with pytest.raises(BadRequest):
            await whole(service, msgspec.structs.replace(request, schema={"unknown": 1}))


def test_takes_as_many_as_it_has_slots_or_is_told() -> None:
    assert [Demo.find_capacity(DemoOptions(capacity=told)) for told in (None, 3)] == [SLOTS, 3]


async def test_refuses_a_file_and_says_who_runs_it() -> None:
    with pytest.raises(TgError, match="llama-cpp") as refused:
        await Demo.rehearse("mine", DemoOptions(path="mine.gguf"))
    assert refused.value.option == ("path",)
