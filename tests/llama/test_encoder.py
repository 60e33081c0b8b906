"""Vectors of a model that only encodes, and vectors cut to fewer numbers."""

import asyncio
import math
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.encoder_model import CONTEXT, WIDTH, write_encoder
from tests.llama.demo_llm import asked, opened, records_of, whole
from tg_llama.native.library import native
from tg_llama.provider import LlamaCpp
from tg_schema import TextCompletionRequest
from tg_schema.errors import BadRequest, ContextLengthExceeded
from tg_schema.text_completion import Pooling

pytestmark = pytest.mark.model

TEXTS = ("a fox runs", "what is a topic", "anna", "paris is a topic " * 8, "fox fox", "anna runs")


async def vectors_of(service: LlamaCpp, *texts: str, **fields: object) -> list[tuple[float, ...]]:
    request = TextCompletionRequest(operation="embed", texts=texts, **fields)  # type: ignore[arg-type]
    return list((await whole(service, request)).vectors)


@pytest.mark.parametrize(("number", "pooling"), [(1, None), (2, None), (3, None), (2, "mean"), (2, "last")], ids=str)
async def test_vectors_of_an_encoder_are_those_that_llama_cpp_pools(
    tmp_path: Path, number: int, pooling: Pooling | None
) -> None:
    path = write_encoder(tmp_path / "encoder.gguf", number)
    wanted = number if pooling is None else {"mean": 1, "last": 3}[pooling]
    reference = native.Llama(str(path), embedding=True, n_ctx=CONTEXT, pooling_type=wanted, n_threads=1, verbose=False)
    # Steps of a whole text and a bit: some texts share one, and the long one has its own.
    async with opened(path=str(path), batch=16, engines=2) as service:
        some, again = await asyncio.gather(
            vectors_of(service, *TEXTS, pooling=pooling), vectors_of(service, *reversed(TEXTS), pooling=pooling)
        )
        cut = await vectors_of(service, TEXTS[3] * 9, pooling=pooling, truncate=True)
    for text, vector in zip(TEXTS, some, strict=True):
        expected = np.array(reference.embed(text, normalize=True))
        assert float(expected @ np.array(vector)) == pytest.approx(1, abs=1e-4)
    assert np.allclose(some, list(reversed(again)), atol=1e-5)
    assert math.hypot(*cut[0]) == pytest.approx(1, abs=1e-6)
    reference.close()


async def test_an_encoder_says_what_it_is(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "encoder.gguf", 2)
    async with opened(path=str(path)) as service:
        assert service.features >= {"embed", "embed_ids", "pooling", "truncate", "tokenize", "detokenize"}
        assert not service.features & {"tools", "history", "schema", "n", "raw", "score", "logprobs"}
        (listed,) = await records_of(service, TextCompletionRequest(operation="list-models"))
        assert listed.models[0].dimensions == WIDTH
        assert listed.models[0].context_length == CONTEXT
        (ids,) = await records_of(service, TextCompletionRequest(operation="tokenize", texts=("a fox",)))
        assert ids.ids == (4, 5)
        for request, said in ((asked("Hello."), "writes no text"), (asked("Hello.", seed=1), "can't do this: seed")):
            with pytest.raises(BadRequest, match=said):
                await records_of(service, request)
        with pytest.raises(ContextLengthExceeded, match="truncate"):
            await vectors_of(service, "a " * 100)


async def test_dimensions_are_cut_where_the_configuration_says_so() -> None:
    async with opened(extra_features=frozenset({"dimensions"})) as service:
        assert "dimensions" in service.features
        (full,) = await vectors_of(service, "What is a topic?")
        (cut,) = await vectors_of(service, "What is a topic?", dimensions=64)
        assert len(cut) == 64
        assert np.allclose(np.array(cut), np.array(full[:64]) / np.linalg.norm(full[:64]), atol=1e-6)
        (same,) = await vectors_of(service, "What is a topic?", dimensions=len(full))
        assert np.allclose(same, full, atol=1e-6)
        with pytest.raises(BadRequest, match=f"have {len(full)} numbers"):
            await vectors_of(service, "What is a topic?", dimensions=len(full) + 1)
