"""Vectors -> scores of pairs: what waits for its pair is bounded."""

import pytest

from tg_gateway.dialects.embeddings.similarity import MAX_WAITING_NUMBERS, PairScores
from tg_schema.errors import TooLarge

LONG = (1.0,) * (MAX_WAITING_NUMBERS // 64)


def test_vectors_that_wait_are_bounded() -> None:
    scores = PairScores(65, 65)
    for number in range(64):
        scores.take(number, LONG)
    with pytest.raises(TooLarge, match="ask for fewer"):
        scores.take(64, LONG)


def test_what_was_compared_waits_no_more() -> None:
    scores = PairScores(2, 2)
    for _ in range(100):
        scores.take(0, LONG[:1000])
        scores.take(2, LONG[:1000])
    assert scores.scores == [pytest.approx(1.0), 0.0]
