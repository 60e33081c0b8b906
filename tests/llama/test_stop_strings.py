from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_base.llm import AnswerText
from tg_base.llm.stop_strings import StopStrings
from tg_schema import Token

LETTERS = "abé\U0001f600"
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=3)


def shown(stops: list[str], parts: list[str]) -> tuple[str, bool]:
    watch = StopStrings(stops)
    text = ""
    for part in parts:
        more, stopped = watch.feed(part)
        text += more
        if stopped:
            return text, True
    return text + watch.flush(), False


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """Character by character: the first moment at which the text ends with a stop string."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def cut(text: str, places: list[int]) -> list[str]:
    edges = sorted({min(place, len(text)) for place in places} | {0, len(text)})
    return [text[left:right] for left, right in pairwise(edges)]


@given(STOPS, st.text(LETTERS, max_size=30), st.lists(st.integers(0, 30), max_size=30))
def test_any_split_shows_the_text_before_the_stop_string(stops: list[str], text: str, places: list[int]) -> None:
    assert shown(stops, cut(text, places)) == expected(stops, text)


@given(STOPS, st.text(LETTERS, max_size=30))
def test_only_what_may_begin_a_stop_string_is_held_back(stops: list[str], text: str) -> None:
    watch = StopStrings(stops)
    given_out = ""
    for letter in text:
        more, stopped = watch.feed(letter)
        given_out += more
        if stopped:
            return
        held = text[len(given_out) : len(given_out) + watch.held]
        assert given_out + held == text[: len(given_out) + len(held)]
        assert not held or any(stop.startswith(held) for stop in stops)


@given(STOPS, st.text(LETTERS, max_size=30), st.lists(st.integers(0, 30), max_size=30))
def test_a_stop_string_that_is_shown_holds_nothing_back(stops: list[str], text: str, places: list[int]) -> None:
    watch, given_out, fed = StopStrings(stops, keep=True), "", ""
    for part in cut(text, places):
        more, stopped = watch.feed(part)
        given_out, fed = given_out + more, fed + part
        if stopped:
            break
        assert (given_out, watch.held) == (fed, 0)
    before, ends = expected(stops, text)
    assert given_out + watch.flush() == before + (watch.found or "")
    assert (watch.found is not None) == ends


@given(STOPS, st.text(LETTERS, max_size=20), st.lists(st.integers(0, 60), max_size=60))
def test_bytes_cut_anywhere_give_the_same_text(stops: list[str], text: str, places: list[int]) -> None:
    raw = text.encode()
    edges = sorted({min(place, len(raw)) for place in places} | {0, len(raw)})
    answer = AnswerText(stops)
    text_shown, stopped = "", False
    for left, right in pairwise(edges):
        more, _, stopped = answer.feed(raw[left:right], None)
        text_shown += more
        if stopped:
            break
    if not stopped:
        more, _, stopped = answer.flush()
        text_shown += more
    assert (text_shown, stopped) == expected(stops, text)


def token(number: int) -> Token:
    return Token(id=number, text="")


def test_tokens_come_with_the_text_they_begin() -> None:
    answer = AnswerText(["STOP"])
    assert answer.feed(b"one S", token(1)) == ("one ", (token(1),), False)
    assert answer.feed(b"T", token(2)) == ("", (), False)
    assert answer.feed(b"x", token(3)) == ("STx", (token(2), token(3)), False)
    assert answer.feed(b" ST", token(4)) == (" ", (token(4),), False)
    assert answer.feed(b"OP more", token(5)) == ("", (), True)


def test_a_character_in_three_tokens_comes_whole() -> None:
    answer = AnswerText([])
    first, second, third = "€".encode()[:1], "€".encode()[1:2], "€".encode()[2:]
    assert answer.feed(first, token(1)) == ("", (token(1),), False)
    assert answer.feed(second, token(2)) == ("", (token(2),), False)
    assert answer.feed(third, token(3)) == ("€", (token(3),), False)


@pytest.mark.parametrize("raw", [b"\xff", "€".encode()[:2]])
def test_bytes_that_are_no_text_become_one_replacement(raw: bytes) -> None:
    answer = AnswerText([])
    text = answer.feed(b"a" + raw, None)[0] + answer.flush()[0]
    assert text == "a\N{REPLACEMENT CHARACTER}"
