"""LMQL, unmodified, against the LMTP door before the demo model: one run of `ask_by_lmql.py`, and what it saw."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environment import python_of
from tests.clients.program import printed_by
from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import open_gateway, until_listed
from tests.llama.demo_llm import opened
from tg_llama.native.model import Model

pytestmark = [pytest.mark.clients, pytest.mark.model, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("ask_by_lmql.py")
PACKAGES = ("lmql==0.7.3", "aiohttp==3.14.5", "numpy==2.4.6", "tiktoken==0.14.0", "openai==3.54.0")
"""What its client and its queries need; transformers and torch are for its own models alone."""
MODEL = "tinydemo"
RUN_SECONDS = 100
Items = list[dict[str, Any]]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What LMQL saw in each check."""
    return asyncio.run(_run(python_of("lmql-0.7.3", PACKAGES), tmp_path_factory.mktemp("lmql")))


async def _run(python: Path, folder: Path) -> dict[str, Any]:
    vocabulary = folder / "vocabulary.json"
    async with opened() as service, open_gateway(llm=CountingLlm(MODEL), instead=service) as it:
        await until_listed(it.http)
        vocabulary.write_text(json.dumps(_describe(service.engine.model)))
        host, port = it.address
        asking = (python, PROGRAM, f"{host}:{port}/", MODEL, vocabulary)
        own = {"HOME": str(folder), "PATH": os.environ["PATH"]}
        printed = await printed_by(*asking, seconds=RUN_SECONDS, environment=own)
    seen = json.loads(printed.splitlines()[-1])
    assert isinstance(seen, dict)
    return seen


def _describe(model: Model) -> dict[str, dict[str, int]]:
    """The vocabulary as tiktoken takes it; LMQL knows the end token by OpenAI's name for it."""
    control = [number for number, piece in enumerate(model.pieces) if not piece]
    ranks = {piece.decode("latin-1"): number for number, piece in enumerate(model.pieces) if piece}
    special = {f"<|{number}|>": number for number in control if number != END}
    return {"ranks": ranks, "special": special | {"<|endoftext|>": END}}


END = 2
"""The demo model's own."""


def check_items(items: Items) -> None:
    """As the reference has them: one final item, and each one's alternatives with the token itself."""
    assert [item["finish_reason"] is None for item in items] == [True] * (len(items) - 1) + [False]
    for item in items:
        assert item["top_logprobs"][str(item["token"])] == item["logprob"]
        assert item["logprob"] <= 0


def test_model_info(seen: dict[str, Any]) -> None:
    assert seen["model_info"]["model_info"] == f"{MODEL} (flow default)"
    assert seen["model_info"]["capabilities"]["ids"]


def test_tokens(seen: dict[str, Any]) -> None:
    items = seen["generate"]
    check_items(items)
    assert (len(items), items[-1]["finish_reason"]) == (12, "length")
    for item in items:
        best = max(item["top_logprobs"].values())
        assert len(item["top_logprobs"]) == 3
        assert item["logprob"] == best


def test_the_end_token_is_the_last(seen: dict[str, Any]) -> None:
    items = seen["generate_to_the_end"]
    check_items(items)
    assert (items[-1]["token"], items[-1]["finish_reason"]) == (END, "stop")
    assert [item["token"] for item in items[:12]] == [item["token"] for item in seen["generate"]]


def test_streams_side_by_side_are_those_alone(seen: dict[str, Any]) -> None:
    together, alone = seen["side_by_side"]
    assert together == alone
    assert all(together)


def test_scores(seen: dict[str, Any]) -> None:
    items = seen["score"]
    assert [item["finish_reason"] for item in items] == [None] * (len(items) - 1) + ["stop"]
    assert all("top_logprobs" not in item and item["logprob"] < 0 for item in items)


def test_a_bias_forces_tokens_and_is_in_their_probabilities(seen: dict[str, Any]) -> None:
    items = seen["forced"]
    check_items(items)
    assert len({item["token"] for item in items}) == 1
    assert all(item["logprob"] > -0.001 for item in items)


def test_a_mask_of_another_vocabulary_raises(seen: dict[str, Any]) -> None:
    assert seen["mask_beyond_the_vocabulary"] == "logit_bias: this model's token ids are 0 to 2047"


def test_an_unknown_model_raises(seen: dict[str, Any]) -> None:
    assert seen["unknown_model"] == f"there is no model 'nobody'; there are: {MODEL}"


def test_the_whole_stack_generates_and_scores(seen: dict[str, Any]) -> None:
    assert seen["whole_stack_generates"].strip()
    fox, zebra = seen["whole_stack_scores"]
    assert zebra < fox < 0


def test_queries_keep_their_constraints(seen: dict[str, Any]) -> None:
    assert seen["query_with_a_choice"]["ANIMAL"] in {" fox", " cat", " owl"}
    assert isinstance(seen["query_with_a_number"]["NUMBER"], int)
    assert seen["query_with_limits"]["TEXT"].strip()
    assert seen["query_that_samples"]["TEXT"].strip()
    assert len(seen["query_with_beams"]) == 2
