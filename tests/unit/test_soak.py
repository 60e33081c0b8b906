"""The soak's own eyes: what is lost, hung, wrong or growing is seen as that."""

import time
from pathlib import Path
from typing import Any

import pytest

from bench.soak import Look, growths
from bench.soak_load import Answer, Book, End
from bench.soak_pipeline import Member, Outage
from bench.soak_text import Question

QUESTION = Question(7, 12, 0)
CALL, OTHER = "0123abcd", "4567cdef"
WHOLE = QUESTION.answer(CALL)


def record(text: str, *, last: bool = False) -> dict[str, Any]:
    return {"response": text, "end_of_stream": last}


HALF = [record(QUESTION.piece(CALL, 0)), record(QUESTION.piece(CALL, 1))]
LAST = record("", last=True)
FAILED = {"error": {"type": "unavailable", "message": "m"}, "end_of_stream": True}


@pytest.mark.parametrize(
    ("records", "away", "end"),
    [
        ([record(WHOLE), LAST], None, End.WHOLE),
        ([*HALF, FAILED], None, End.TYPED),
        ([FAILED], None, End.TYPED),
        (HALF, None, End.LOST),
        ([], None, End.LOST),
        (HALF, True, End.CONNECTION),
        (HALF, False, End.LOST),
        ([], True, End.REFUSED),
        ([], False, End.REFUSED),
        ([*HALF, LAST], None, End.WRONG),
        ([record(WHOLE), record("more"), LAST], None, End.WRONG),
        ([HALF[0], HALF[0]], True, End.WRONG),
        ([HALF[0], record(QUESTION.piece(CALL, 2))], None, End.WRONG),
        ([HALF[0], record(QUESTION.piece(OTHER, 1)), FAILED], None, End.WRONG),
        ([record(Question(8, 12, 0).piece(CALL, 0)), FAILED], None, End.WRONG),
        ([{"error": {"type": "surprise"}}], None, End.WRONG),
    ],
)
def test_ends(records: list[dict[str, Any]], away: bool | None, end: End) -> None:
    now = time.monotonic()
    gateway = Member("gateway-2", [], "", Path(), door=True)
    if away is not None:
        gateway.outages.append(Outage(now - 1, sudden=away))
    answer, book = Answer(QUESTION), Book()
    for each in records:
        answer.take(each)
    book.write("sse", answer, gateway, now - 2)
    assert book.ends == {end: 1}
    assert bool(book.bad) == (end in {End.LOST, End.HUNG, End.WRONG})


def test_nothing_in_time_is_hung_and_leaving_is_neither() -> None:
    book, gateway = Book(), Member("gateway-1", [], "", Path(), door=True)
    book.write("sse", Answer(QUESTION), gateway, time.monotonic() - 50, late=True)
    book.write("leaving", Answer(QUESTION, left=True), gateway, time.monotonic())
    assert book.ends == {End.HUNG: 1, End.LEFT: 1}
    assert book.accepted == 2


def looks(step: float, count: int) -> list[Look]:
    return [
        Look(40.0 * n, {"p": 100 + step * n}, {"p": 20 + int(step * n)}, {"p": 9 + int(step * n)}, 13, 14, 0, 0)
        for n in range(count)
    ]


@pytest.mark.parametrize(("step", "flat"), [(0.0, True), (0.5, True), (5.0, False)])
@pytest.mark.parametrize("count", [2, 3, 12])
def test_growth(step: float, flat: bool, count: int) -> None:
    found = {growth.what: growth.flat for growth in growths(looks(step, count))}
    assert found["topics"]
    assert found["subscriptions"]
    if flat or count == 12:
        assert found["memory of p, MiB"] == found["tasks of p"] == found["descriptors of p"] == flat


def test_a_short_run_has_no_warm_up_and_twice_the_bound() -> None:
    short, long = (
        next(growth for growth in growths(looks(1.0, count)) if growth.what == "memory of p, MiB") for count in (3, 12)
    )
    assert short.bound == 2 * long.bound
    assert not next(growth for growth in growths(looks(30.0, 3)) if growth.what == "memory of p, MiB").flat
