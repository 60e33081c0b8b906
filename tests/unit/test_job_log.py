"""Entries of a log -> the answer: the first end counts, repeated parts do not, foreign entries harm nobody."""

from collections.abc import Mapping

import pytest

from tg_base.bus import Entry
from tg_gateway.dialects import BEGUN_LINES, KeptAnswer
from tg_gateway.jobs.log import (
    ALIVE,
    ASKED,
    BEGUN,
    CANCEL,
    HEAD,
    RETURNED,
    WHOLE,
    JobLog,
    label,
    label_claim,
    label_end,
    label_first,
    label_lost,
    label_part,
    label_returned,
    label_taken,
)

Written = tuple[Mapping[str, str], bytes]
FIRST: Written = (label_first(HEAD, "k", 7.0), b"head")


def part(number: int, body: bytes) -> Written:
    return label_part(number), body


def read(*written: Written) -> JobLog:
    return JobLog(tuple(Entry(body, properties, str(place)) for place, (properties, body) in enumerate(written)))


def test_an_answer_that_was_kept_at_its_end() -> None:
    log = read((label_first(WHOLE, "k", 7.0), b"all"))
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


def note(written: str) -> Written:
    """+a, b>a: taken, in place of a; !a: asked; -a: returned."""
    kind, claim = written[0], written[1:]
    if kind in "!-":
        return label_claim({"!": ASKED, "-": RETURNED}[kind], claim), b""
    return (label_taken(claim) if kind == "+" else label_taken(*written.split(">"))), b""


@pytest.mark.parametrize(
    ("then", "taker", "waits"),
    [
        ("", "", True),
        ("+a", "a", True),
        # Of several the first has it, and only that one asks or returns it.
        ("+a +b", "a", True),
        ("+a +b -b", "a", True),
        ("+a -a", "", True),
        ("+a +b -a", "", True),
        ("+a -a +b -a", "b", True),
        ("-a", "", True),
        ("+a !a", "a", False),
        ("+a !b", "a", True),
        ("!a +a", "a", True),
        ("+a !a +a", "a", False),
        # Another one takes its place until it asks, and what it says later does not count.
        ("+a b>a", "b", True),
        ("+a b>a !a", "b", True),
        ("+a b>a !b !a", "b", False),
        ("+a b>a -a", "b", True),
        ("+a !a b>a", "a", False),
        ("+a !a b>a !b", "a", False),
        ("+a !a -a b>a", "b", True),
        ("+a !a -a +b !a", "b", True),
        ("+a b>a c>a", "b", True),
        ("+a b>a c>b", "c", True),
        ("b>a", "b", True),
        # What nobody of ours writes.
        ("+ !", "", True),
    ],
)
def test_who_has_an_answer_that_waited(then: str, taker: str, waits: bool) -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), *map(note, then.split()))
    assert (log.taker, log.asked, log.waiting) == (taker, "!" in then and not waits, waits)
    assert [log.is_expired(now) for now in (6.9, 7.0)] == [False, waits]
    log.add(Entry(b"", label_end("expired"), "9"))
    assert (log.waiting, log.is_expired(8.0), log.answer.outcome) == (False, False, "expired")


def write(written: str, place: int) -> Written:
    """As `note`; ?a: found lost; %a: the same, but with an entry between; ~a: returned, with one attempt used.

    b_a, p_a, e_a: begun, part 0 and end, by a; e: an end by a reader; c: cancelled.
    """
    plain = {"e": label_end("died"), "c": label_claim(CANCEL, ""), "s": label(ALIVE)}.get(written)
    if plain is not None:
        return plain, b""
    kind, claim = written[0], written[1:].removeprefix("_")
    made = {
        "?": label_lost(claim, str(place - 1)),
        "%": label_lost(claim, str(place - 2)),
        "~": label_returned(claim, 5.0),
    }
    by = {"b_": label(BEGUN, claim), "p_": label_part(0, claim), "e_": label_end("ended", by=claim)}
    found = made.get(kind) or by.get(written[:2])
    return note(written) if found is None else (found, claim.encode())


@pytest.mark.parametrize(
    ("then", "taker", "attempts", "state"),
    [
        ("+a !a", "a", 1, "repeatable"),
        ("+a !a !a +a", "a", 1, "repeatable"),
        # Who is lost is known by its silence, which no entry may have broken.
        ("+a !a ?a", "", 1, "waiting"),
        ("+a !a s %a", "a", 1, "repeatable"),
        ("+a !a ?a ?a", "", 1, "waiting"),
        ("+a !a ?b", "a", 1, "repeatable"),
        ("+a ?a", "a", 0, "waiting"),
        ("?a ?", "", 0, "waiting"),
        # Of two that try at a time one gets it, and what the lost one says later does not count.
        ("+a !a ?a +b +c !c !b", "b", 2, "repeatable again"),
        ("+a !a ?a +b !a e_a p_a b_a", "b", 1, "waiting again"),
        ("+a !a ?a -a", "", 1, "waiting"),
        ("+a !a ?a e_a", "", 1, "waiting"),
        ("+a !a ?a +b !b -a", "b", 2, "repeatable again"),
        # All attempts are used.
        ("+a !a ?a +b !b ?b +c !c", "c", 3, "again"),
        ("+a !a ?a +b !b ?b +c !c ?c +d", "c", 3, "again"),
        # One whose processor was lost uses one; one that was returned for another reason uses none.
        ("+a !a ~a +b !b", "b", 2, "repeatable again"),
        ("+a !a -a +b !b", "b", 1, "repeatable"),
        ("+a !a -a", "", 0, "waiting"),
        ("+a !a ~a +b !b -b +c", "c", 1, "waiting"),
        ("+a !a ~b", "a", 1, "repeatable"),
        ("+a -a", "", 0, "waiting"),
        # It works, but nothing is written.
        ("+a !a b_a", "a", 1, "repeatable begun"),
        ("+a !a b_a ?a", "", 1, "waiting"),
        # Something is written, or nobody wants it any more.
        ("+a !a p_a", "a", 1, ""),
        ("+a !a p_a ?a", "a", 1, ""),
        ("+a !a c", "a", 1, "cancelled"),
        ("+a !a c ?a", "a", 1, "cancelled"),
        ("+a !a ?a c", "", 1, "waiting cancelled"),
        # Whoever takes it over before it asks has used none.
        ("+a b>a !b", "b", 1, "repeatable again"),
        ("+a b>a e_a p_a", "b", 0, "waiting again"),
    ],
)
def test_how_often_a_model_is_asked(then: str, taker: str, attempts: int, state: str) -> None:
    first: Written = (label_first(HEAD, "k", 9.0, waits=7.0, attempts=3), b"head")
    log = read(first, *(write(each, place + 1) for place, each in enumerate(then.split())))
    said = ("waiting", "repeatable", "begun", "cancelled", "again")
    known = (log.waiting, log.repeatable, log.answer.begun, log.cancelled, log.again)
    assert {name for name, held in zip(said, known, strict=True) if held} == set(state.split())
    parts = [BEGUN_LINES] * ("!a b_a" in then) + [b"a"] * ("p_a" in then and not state)
    assert (log.taker, log.attempts, log.take_parts()) == (taker, attempts, parts)
    assert (log.outcome, log.overdue) == ("running", "died" if attempts else "expired")


@pytest.mark.parametrize("maker", ["a", "b"])
def test_only_the_end_of_who_has_it_counts(maker: str) -> None:
    written = [write(each, place + 1) for place, each in enumerate(["+a", "!a", "?a", "+b", "!b", "e_a", "p_b", "e_b"])]
    log = read((label_first(HEAD, "k", 9.0, waits=7.0, attempts=2 if maker == "b" else 1), b"head"), *written)
    assert (log.outcome, log.answer.end, log.taker) == ("ended", maker.encode(), maker)
    assert log.take_parts() == ([b"b"] if maker == "b" else [])


def test_a_reader_may_end_what_another_one_has() -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), note("+a"), note("!a"), write("e", 3))
    assert (log.outcome, log.waiting, log.repeatable) == ("died", False, False)


@pytest.mark.parametrize("attempts", ["1", "0", "-3", "nan", "many", ""])
def test_a_number_of_attempts_that_is_none_is_one(attempts: str) -> None:
    head = {**label_first(HEAD, "k", 9.0, waits=7.0), "attempts": attempts}
    log = read((head, b""), note("+a"), note("!a"))
    assert not log.repeatable


def test_a_log_without_its_bodies_says_the_same_of_all_else() -> None:
    log = read((label_first(HEAD, "k", 9.0, waits=7.0), b"head"), part(0, b"a"), note("+a"))
    log.drop_bodies()
    assert (log.take_parts(), log.taker, log.part_count, log.waiting) == ([], "a", 1, True)


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
    assert read(({"key": "k", "expires": "soon"}, b"")).expires == 0


def test_a_gateway_of_the_version_before_learns_that_the_taker_logs_and_signs() -> None:
    """Without the first it never takes the answer over; without the second it never asks a model again for it."""
    for taken in (label_taken("a"), label_taken("b", "a")):
        assert (taken["tells"], taken["signs"]) == ("1", "1")
