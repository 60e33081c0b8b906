"""The models of random weights that figures are taken with: llama.cpp computes them, and their answers are text."""

from pathlib import Path

import pytest

from bench.random_model import Shape, write_random_model
from tests.llama.demo_llm import asked, opened, whole

pytestmark = pytest.mark.model

TINY = Shape(width=64, layers=2, heads=4, shared_heads=2, inner=96, context=256)


async def test_a_random_model_answers_with_text_of_the_length_that_is_asked_for(tmp_path: Path) -> None:
    parameters = write_random_model(tmp_path / "random.gguf", TINY)
    again = tmp_path / "again.gguf"
    assert write_random_model(again, TINY) == parameters == 2048 * 64 * 2 + 64 * 5 + 2 * (3 * 64 * 64 + 3 * 64 * 96)
    assert again.read_bytes() == (tmp_path / "random.gguf").read_bytes()
    async with opened(path=str(again), slots=2) as service:
        answer = await whole(service, asked("What is streaming?", seed=1, max_tokens=100, temperature=2, top_k=0))
    assert answer.finish_reason == "length", "no end token is ever chosen"
    assert answer.out_token == 100
    assert answer.response is not None
    assert answer.response.isascii()
    assert answer.response.isprintable()
