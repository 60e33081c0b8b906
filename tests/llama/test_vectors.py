"""Vectors of the demo model: the same as llama.cpp pools, in any batch, beside streams, cancelled, refused."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import aclosing

import numpy as np
import pytest

from tests.llama.demo_llm import ENDLESS, STORY, asked, at_rest, demo_service, opened, text_of, until
from tg_llama.core.interface import EngineSizes
from tg_llama.engine.embedder import MIN_SHARED_TOKENS, Embedder, Embedding, Vector
from tg_llama.models import DEMO_MODEL
from tg_llama.native.library import native
from tg_llama.native.model import Model
from tg_llama.provider import LlamaCpp
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.errors import BadRequest, ContextLengthExceeded, RateLimited, TooLarge, Unavailable
from tg_schema.text_completion import Pooling

pytestmark = pytest.mark.model

TEXTS = ("What is a topic?", "Anna lives in Paris.", "Ä. " + "A fox runs. " * 40, "2 + 3 = 5", "x")
TOLERANCE = 2e-3
"""How far numbers may differ: a text is summed up in other steps."""
STEP = 48
"""Tokens of a step: the long text takes several."""


@pytest.fixture(scope="module")
def service() -> Iterator[LlamaCpp]:
    with demo_service(batch=STEP, engines=2) as service:
        yield service


def embedding(texts: Sequence[str] = (), **fields: object) -> TextCompletionRequest:
    return TextCompletionRequest(operation="embed", texts=tuple(texts), **fields)  # type: ignore[arg-type]


async def vectors_of(service: LlamaCpp, request: TextCompletionRequest) -> tuple[Vector, ...]:
    (whole,) = TextCompletionResponse.join([record async for record in service.on_request(request)])
    return whole.vectors


@pytest.mark.parametrize(("pooling", "number"), [("mean", 1), ("last", 3)])
async def test_vectors_are_those_that_llama_cpp_pools(service: LlamaCpp, pooling: Pooling, number: int) -> None:
    vectors = await vectors_of(service, embedding(TEXTS, pooling=pooling))
    reference = native.Llama(
        str(DEMO_MODEL), embedding=True, n_ctx=512, pooling_type=number, n_threads=1, verbose=False
    )
    for text, vector in zip(TEXTS, vectors, strict=True):
        expected = np.array(reference.embed(text, normalize=True))
        assert float(expected @ np.array(vector)) == pytest.approx(1, abs=1e-3)
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)
    reference.close()


async def test_a_vector_does_not_depend_on_its_neighbours(service: LlamaCpp) -> None:
    together = await vectors_of(service, embedding(TEXTS))
    alone = [(await vectors_of(service, embedding([text])))[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=TOLERANCE)
    np.testing.assert_allclose(await vectors_of(service, embedding(TEXTS[::-1])), alone[::-1], atol=TOLERANCE)


async def test_ids_stand_for_their_text_and_all_tokens_are_counted(service: LlamaCpp) -> None:
    ids = tuple(tuple(service.engine.model.tokenize(text, special=False, ends=True)) for text in TEXTS)
    request = TextCompletionRequest(operation="embed", id_lists=ids)
    np.testing.assert_allclose(
        await vectors_of(service, request), await vectors_of(service, embedding(TEXTS)), atol=TOLERANCE
    )
    records = [record async for record in service.on_request(embedding(TEXTS))]
    assert records[-1].in_token == sum(map(len, ids))


async def test_a_long_text_is_refused_or_cut(service: LlamaCpp) -> None:
    limit = service.engine.context_length
    long = (7,) * (limit + 1)
    said = f"is {limit} tokens.*has {limit + 1} tokens.* or have it truncated.$"
    with pytest.raises(ContextLengthExceeded, match=said):
        await vectors_of(service, TextCompletionRequest(operation="embed", id_lists=(long,)))
    cut = await vectors_of(service, TextCompletionRequest(operation="embed", id_lists=(long, long[1:]), truncate=True))
    np.testing.assert_allclose(cut[0], cut[1], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (TextCompletionRequest(operation="embed", id_lists=((1, 2048),)), BadRequest, "ids are 0 to 2047"),
        (embedding(["a" * 100_000]), ContextLengthExceeded, "Cut the text into parts, or have it truncated.$"),
        (embedding(["a" * 2000] * 1001), TooLarge, "2000000 characters"),
        (embedding(["a"], dimensions=64), BadRequest, "can't do this: dimensions;"),
    ],
)
async def test_what_cannot_be_embedded_is_told(
    service: LlamaCpp, request_: TextCompletionRequest, kind: type[TgError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await vectors_of(service, request_)


async def test_a_stream_beside_gets_the_text_that_it_gets_alone(service: LlamaCpp) -> None:
    story = asked(STORY, seed=5)
    alone = await text_of(service, story)
    text, vectors = await asyncio.gather(text_of(service, story), vectors_of(service, embedding(TEXTS * 5)))
    assert text == alone
    assert len(vectors) == 5 * len(TEXTS)


async def test_a_step_beside_streams_is_short() -> None:
    model = Model(DEMO_MODEL)
    embedder = Embedder(model, EngineSizes(slots=1, context=512))
    embedder.add(Embedding([(7,) * 500] * 3, "mean"))
    assert embedder.step(shared=True) == MIN_SHARED_TOKENS
    assert embedder.step(shared=False) == 512
    embedder.close()
    model.close()


async def test_a_long_list_holds_up_no_short_one() -> None:
    async with opened(batch=STEP, engines=1) as service:
        long = asyncio.create_task(
            vectors_of(service, TextCompletionRequest(operation="embed", id_lists=((7,) * 40,) * 200))
        )
        await until(service, lambda stats: stats.embedded_tokens > 0)
        assert len(await vectors_of(service, embedding(["a"]))) == 1
        assert not long.done()
        long.cancel()


async def test_a_cancelled_list_is_not_evaluated_to_its_end() -> None:
    async with opened(batch=STEP, engines=1) as service:
        request = TextCompletionRequest(operation="embed", id_lists=((7,) * 40,) * 2000)
        task = asyncio.create_task(vectors_of(service, request))
        await until(service, lambda stats: stats.embedded_tokens > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await at_rest(service)).embedded_tokens < 40 * 2000


async def test_more_than_may_wait_are_refused() -> None:
    async with opened(slots=1, waiting=0, engines=1) as service, aclosing(service.on_request(ENDLESS)) as endless:
        await anext(endless)
        with pytest.raises(RateLimited):
            await vectors_of(service, embedding(["a"]))


async def test_what_waits_when_the_model_closes_fails() -> None:
    async with opened(batch=STEP, engines=1) as service:
        request = TextCompletionRequest(operation="embed", id_lists=((7,) * 40,) * 2000)
        task = asyncio.create_task(vectors_of(service, request))
        await until(service, lambda stats: stats.embedded_tokens > 0)
    with pytest.raises(Unavailable, match="shut down"):
        await task
