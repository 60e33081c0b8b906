"""A whole answer as it is gathered: the same text as in one go, and never more than could travel."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_base.bus import MAX_MESSAGE_BYTES
from tg_base.protocol.link_sender import MAX_JOINED_BYTES
from tg_schema import TextCompletionResponse, ToolCallDelta
from tg_schema.answer_collector import MAX_ANSWER_BYTES, AnswerCollector
from tg_schema.errors import TooLarge

joined = TextCompletionResponse.join
LAST = TextCompletionResponse(response="", in_token=3, out_token=4, finish_reason="stop", end_of_stream=True)


def test_it_holds_what_a_link_carries() -> None:
    assert MAX_ANSWER_BYTES == MAX_MESSAGE_BYTES - MAX_JOINED_BYTES


@given(st.lists(st.text(max_size=50_000), max_size=40))
def test_the_text_is_that_of_all_records(texts: list[str]) -> None:
    collector = AnswerCollector(joined)
    for text in texts:
        collector.add(TextCompletionResponse(response=text, out_token=1))
    collector.add(LAST)
    (answer,) = collector.records()
    assert answer.response == "".join(texts)
    assert (answer.in_token, answer.out_token, answer.finish_reason) == (3, len(texts) + 4, "stop")


def test_a_long_answer_of_many_small_records_is_whole() -> None:
    collector = AnswerCollector(joined)
    for _ in range(200_000):
        collector.add(TextCompletionResponse(response="token "))
    (answer,) = collector.records()
    assert answer.response == "token " * 200_000


@pytest.mark.parametrize(
    "record",
    [
        TextCompletionResponse(response="x" * 1000),
        TextCompletionResponse(response="", reasoning="\u20ac" * 100),
        TextCompletionResponse(response="", tool_calls=(ToolCallDelta(0, "1", "f", '"' * 500),)),
        TextCompletionResponse(response="x" * 3_000_000),
    ],
)
def test_an_answer_without_end_is_refused_and_costs_no_more_than_its_bound(record: TextCompletionResponse) -> None:
    collector = AnswerCollector(joined)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="max_tokens"):
            _fill(collector, record)
        assert tracemalloc.get_traced_memory()[1] < 6 * MAX_ANSWER_BYTES
    finally:
        tracemalloc.stop()


def test_the_last_records_count_too() -> None:
    collector = AnswerCollector(joined, limit=1000)
    collector.add(TextCompletionResponse(response="x" * 2000))
    with pytest.raises(TooLarge):
        collector.records()


def _fill(collector: AnswerCollector[TextCompletionResponse], record: TextCompletionResponse) -> None:
    while True:
        collector.add(record)
