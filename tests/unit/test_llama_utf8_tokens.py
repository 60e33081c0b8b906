from hypothesis import given
from hypothesis import strategies as st

from tg_flow.llama.utf8_tokens import Utf8Tokens, incomplete

BYTES = [bytes([number]) for number in range(256)]
EURO = "€".encode()


def allowed(unfinished: bytes) -> set[bytes]:
    pieces = [*BYTES, b"", EURO, EURO[:2], EURO[1:], EURO[1:] + b"a", EURO[2:] + EURO[:1], EURO[:1] + b"a"]
    mask = Utf8Tokens(pieces).after(unfinished)
    return {piece for piece, may in zip(pieces, mask, strict=True) if may}


@given(st.text(max_size=8), st.integers(0, 32))
def test_every_beginning_of_a_text_can_be_continued_by_its_rest(text: str, place: int) -> None:
    raw = text.encode()
    before = incomplete(raw[:place])
    assert before is not None
    assert raw[:place].endswith(before)
    assert incomplete(before + raw[place:]) == b""


def test_a_character_is_begun_by_a_lead_byte() -> None:
    may = allowed(b"")
    assert {b"a", b"", EURO, EURO[:1], EURO[:2]} <= may
    assert may.isdisjoint({EURO[1:], b"\x80", b"\xff", b"\xc0", EURO[:1] + b"a"})


def test_a_character_is_continued_by_its_own_bytes_only() -> None:
    may = allowed(EURO[:1])
    assert {EURO[1:], EURO[1:] + b"a", EURO[1:2]} <= may
    assert may.isdisjoint({b"a", b"", EURO, EURO[:1]})
    assert allowed(b"\xe0").isdisjoint({b"\x80"}), "overlong"
    assert allowed(b"\xed").isdisjoint({b"\xa0"}), "a surrogate"
    assert EURO[2:] + EURO[:1] in allowed(EURO[:2])
