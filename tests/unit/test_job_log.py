"""Entries of a log -> the answer: the first end counts, repeated parts do not, foreign entries harm nobody."""

from collections.abc import Mapping

import pytest

from tg_base.bus import Entry
from tg_base.client import StreamOrigin
from tg_gateway.dialects import BEGUN_LINES, KeptAnswer
from tg_gateway.jobs.log import (
    ALIVE,
    BEGUN,
    CANCEL,
    END,
    HEAD,
    QUEUED,
    JobLog,
    label,
    label_asked,
    label_end,
    label_first,
    label_part,
    label_returned,
)

Written = tuple[Mapping[str, str], bytes]
FIRST: Written = (label_first(HEAD, "k", 7.0), b"head")


def part(number: int, body: bytes) -> Written:
    return label_part(number), body


def read(*written: Written) -> JobLog:
    return JobLog(tuple(Entry(body, properties, str(place)) for place, (properties, body) in enumerate(written)))


def test_an_answer_that_was_kept_at_its_end() -> None:
    log = read((label_first(END, "k", 7.0), b"all"))
    assert (log.owner, log.expires, log.position) == ("k", 7.0, "0")
    assert log.answer == KeptAnswer(None, b"all", "ended", cut=False)


def test_parts_and_the_end() -> None:
    log = read(FIRST, part(0, b"a"), (label(ALIVE), b""), part(1, b"b"))
    assert (log.outcome, log.take_parts(), log.take_parts()) == ("running", [b"a", b"b"], [])
    log.add(Entry(b"c", label_part(2), "4"))
    log.add(Entry(b"end", label_end("ended"), "5"))
    assert (log.take_parts(), log.position) == ([b"c"], "5")
    assert log.answer == KeptAnswer(b"head", b"end", "ended", cut=False)


@pytest.mark.parametrize(
    ("then", "parts", "answer"),
    [
        # A part that the broker stored twice, one that is missing, and one that came before a writer gave up.
        ([part(0, b"a"), part(0, b"a"), part(1, b"b")], [b"a", b"b"], ("running", b"", False)),
        ([part(0, b"a"), part(2, b"c"), part(1, b"b")], [b"a"], ("running", b"", True)),
        ([part(0, b"a"), (label_end("ended", cut=True), b"x")], [b"a"], ("ended", b"x", True)),
        # The first end counts; nothing follows it.
        ([(label_end("died"), b""), (label_end("ended"), b"x"), part(0, b"a")], [], ("died", b"", False)),
        ([(label_end("ended"), b"x"), (label_end("died"), b"")], [], ("ended", b"x", False)),
        ([(label(CANCEL), b""), (label_end("cancelled"), b"")], [], ("cancelled", b"", False)),
        # What nobody of ours writes.
        ([(label_end("running"), b"")], [], ("died", b"", False)),
        ([({"kind": "end"}, b"x"), FIRST], [], ("died", b"x", False)),
        ([({"kind": "records", "number": "x"}, b"?"), ({"kind": "new"}, b"?")], [], ("running", b"", False)),
        ([({"kind": "records"}, b"?"), ({}, b"?"), part(0, b"a")], [b"a"], ("running", b"", False)),
        ([({"kind": "records", "number": "nan"}, b"a")], [], ("running", b"", True)),
    ],
)
def test_what_counts(then: list[Written], parts: list[bytes], answer: tuple[object, ...]) -> None:
    log = read(FIRST, *then)
    assert log.take_parts() == parts
    assert (log.answer.outcome, log.answer.end, log.answer.cut) == answer


ORIGIN = StreamOrigin("s", 1, "p")


def write(written: str) -> Written:
    """!a: asked by a; b>a, b=a: by b in place of a, which has no model or whose model goes on.

    -a, ~a: returned by a, with no attempt used or with one. b_a, p_a, e_a: begun, part 0 and end, by a; e_: by nobody;
    e: an end by a reader; c: cancelled; s: a sign of life.
    """
    plain = {"e": label_end("died"), "c": label(CANCEL), "s": label(ALIVE)}.get(written)
    if plain is not None:
        return plain, b""
    for mark in ">=":
        if mark in written:
            claim, over = written.split(mark)
            return label_asked(claim, over, ORIGIN if mark == "=" else None), b""
    kind, claim = written[0], written[1:].removeprefix("_")
    made = {"!": label_asked(claim, origin=ORIGIN), "-": label_returned(claim), "~": label_returned(claim, 5.0)}
    by = {"b_": label(BEGUN, claim), "p_": label_part(0, claim), "e_": label_end("ended", by=claim)}
    return made.get(kind) or by[written[:2]], claim.encode()


@pytest.mark.parametrize(
    ("then", "maker", "place"),
    [
        ("", "", None),
        ("!a", "a", 1),
        # Of several the first has it, and only that one returns it.
        ("!a !b", "a", 1),
        ("!a !b -b", "a", 1),
        ("!a -a", "", None),
        ("!a !b -a", "", None),
        ("!a -a !b -a", "b", 1),
        ("-a", "", None),
        # The same one asks elsewhere.
        ("!a a>a", "a", None),
        ("!a a>a !a", "a", None),
        # Another one takes its place, and what it says later does not count.
        ("!a b=a", "b", 1),
        ("!a b=a -a", "b", 1),
        ("!a b=a c=a", "b", 1),
        ("!a b=a c=b", "c", 1),
        ("!a b>a !a", "b", None),
        ("b=a", "", None),
        ("!a -a b=a", "", None),
        # What nobody of ours writes.
        ("! -", "", None),
    ],
)
def test_who_has_an_answer_that_waited(then: str, maker: str, place: int | None) -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), *map(write, then.split()))
    waits = not maker
    assert (log.maker, log.waiting, log.origin) == (maker, waits, ORIGIN if place else None)
    assert [log.is_expired(now) for now in (6.9, 7.0)] == [False, waits]
    log.add(Entry(b"", label_end("expired"), "9"))
    assert (log.waiting, log.is_expired(8.0), log.answer.outcome) == (False, False, "expired")


@pytest.mark.parametrize(
    ("then", "maker", "attempts", "state"),
    [
        ("!a", "a", 1, "repeatable"),
        ("!a !a", "a", 1, "repeatable"),
        ("!a s a>a", "a", 1, "repeatable"),
        # One whose processor was lost uses one; one that was returned for another reason uses none.
        ("!a ~a", "", 1, "waiting"),
        ("!a ~a !b", "b", 2, "repeatable"),
        ("!a -a !b", "b", 1, "repeatable"),
        ("!a -a", "", 0, "waiting"),
        ("!a ~b", "a", 1, "repeatable"),
        ("-a", "", 0, "waiting"),
        # Of two that try at a time one gets it, and what the other one says does not count.
        ("!a ~a !b !c", "b", 2, "repeatable"),
        ("!a ~a !b !a e_a p_a b_a", "b", 2, "repeatable"),
        ("!a ~a -a", "", 1, "waiting"),
        ("!a ~a e_a", "", 1, "waiting"),
        ("e_a", "", 0, "waiting"),
        ("!a e_", "a", 1, "repeatable"),
        # All attempts are used.
        ("!a ~a !b ~b !c", "c", 3, ""),
        ("!a ~a !b ~b !c ~c !d", "d", 4, ""),
        # Who goes on with a model that works uses none.
        ("!a b=a", "b", 1, "repeatable"),
        ("!a b=a e_a p_a", "b", 1, "repeatable"),
        ("!a b=a ~b !c", "c", 2, "repeatable"),
        # It works, but nothing is written.
        ("!a b_a", "a", 1, "repeatable begun"),
        ("!a b_a b=a", "b", 1, "repeatable begun"),
        ("!a b_a ~a", "", 1, "waiting"),
        # Something is written, or nobody wants it any more.
        ("!a p_a", "a", 1, ""),
        ("!a p_a b=a", "b", 1, ""),
        ("!a c", "a", 1, "cancelled"),
        ("!a c ~a", "", 1, "waiting cancelled"),
    ],
)
def test_how_often_a_model_is_asked(then: str, maker: str, attempts: int, state: str) -> None:
    first: Written = (label_first(HEAD, "k", 9.0, waits=7.0, attempts=3), b"head")
    log = read(first, *map(write, then.split()))
    said = ("waiting", "repeatable", "begun", "cancelled")
    known = (log.waiting, log.repeatable, log.answer.begun, log.cancelled)
    assert {name for name, held in zip(said, known, strict=True) if held} == set(state.split())
    parts = [BEGUN_LINES] * ("!a b_a" in then) + [b"a"] * ("!a p_a" in then)
    assert (log.maker, log.attempts, log.take_parts()) == (maker, attempts, parts)
    assert (log.outcome, log.label_loss()["outcome"]) == ("running", "died" if attempts else "expired")


@pytest.mark.parametrize("then", ["!a ~a !b", "!a b=a", "!a b>a"])
def test_only_the_end_of_who_has_it_counts(then: str) -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), *map(write, [*then.split(), "e_a", "p_b", "e_b"]))
    assert (log.outcome, log.answer.end, log.maker, log.take_parts()) == ("ended", b"b", "b", [b"b"])


def test_an_end_before_anybody_makes_it_counts_unless_somebody_does() -> None:
    first: Written = (label_first(HEAD, "k", 9.0, waits=7.0), b"head")
    assert read(first, write("e_")).outcome == "ended"
    log = read(first)
    loss = log.label_loss()
    assert read(first, (loss, b"")).outcome == "expired"
    assert read(first, write("!a"), (loss, b"")).outcome == "running"


def test_a_reader_may_end_what_another_one_has() -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), write("!a"), write("e"))
    assert (log.outcome, log.waiting, log.repeatable) == ("died", False, False)


def test_what_was_asked_once_does_not_expire() -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), (label(QUEUED), b""))
    assert (log.waiting, log.is_expired(8.0), log.outcome) == (False, False, "running")


@pytest.mark.parametrize("attempts", ["1", "0", "-3", "nan", "many", ""])
def test_a_number_of_attempts_that_is_none_is_one(attempts: str) -> None:
    head = {**label_first(HEAD, "k", 9.0, waits=7.0), "attempts": attempts}
    log = read((head, b""), write("!a"))
    assert not log.repeatable


def test_a_log_without_its_bodies_says_the_same_of_all_else() -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), part(0, b"a"), write("!a"))
    log.drop_bodies()
    assert (log.take_parts(), log.maker, log.part_count, log.waiting) == ([], "a", 1, False)


def test_what_never_waited_does_not_expire() -> None:
    assert [(each.waiting, each.is_expired(99.0)) for each in (read(), read(FIRST))] == [(False, False)] * 2
    assert read(({**label_first(HEAD, "k", 9.0), "waits": "nan"}, b"")).is_expired(0.0)


@pytest.mark.parametrize(
    "written",
    [(), (part(0, b"a"), FIRST), (({"kind": HEAD}, b"head"),), (({"kind": "other", "key": "k"}, b""),), (({}, b""),)],
)
def test_a_log_that_is_nobodys(written: tuple[Written, ...]) -> None:
    assert read(*written).owner is None


def test_a_time_that_cannot_be_read_is_long_ago() -> None:
    assert read(({"kind": END, "key": "k", "expires": "soon"}, b"")).expires == 0
