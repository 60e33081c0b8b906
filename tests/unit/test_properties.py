"""Numbers in properties: whatever stands there is a number within its range, or the message is refused."""

import asyncio
import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fakes.given_delivery import GivenDelivery
from tg_base.bus.memory import MemoryBus
from tg_base.client.control_sender import ControlSender
from tg_base.client.inbox import Inbox
from tg_base.protocol import Frame, PublisherClocks, RequestHeaders, StreamKey, whole_number
from tg_base.protocol.request_headers import MAX_ATTEMPT, MAX_DEADLINE_MILLISECONDS, MAX_NUMBER
from tg_schema.errors import BadRequest
from tg_schema.topics import Topics

CLOCKS = PublisherClocks(lambda: 0.0)
NUMERIC = st.from_regex(r"[-+ ]?[0-9\u0660-\u0669_]{1,420}(\.[0-9]*)?(e[0-9]+)?", fullmatch=True)
ANYTHING = st.one_of(st.text(), NUMERIC, st.integers().map(str), st.floats().map(str))
AWKWARD = ("9" * 400, "9" * 5000, "-1", "+1", " 1", "1_0", "\u0663", "nan", "inf", "1e9", "", "9" * 16)


@given(st.integers(0, MAX_NUMBER))
def test_every_number_in_the_range_is_read_as_it_was_written(number: int) -> None:
    assert whole_number("n", str(number)) == number


@given(ANYTHING, st.integers(0, 100), st.integers(0, MAX_NUMBER))
def test_whatever_it_says_it_is_in_the_range_or_refused(text: str, least: int, most: int) -> None:
    with contextlib.suppress(BadRequest):
        assert least <= whole_number("n", text, least=least, most=most) <= most


@pytest.mark.parametrize("text", AWKWARD)
def test_what_is_no_such_number_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        whole_number("n", text, most=MAX_NUMBER)


@given(ANYTHING, ANYTHING)
@example("9" * 400, "1")
@example("1", "9" * 400)
def test_a_call_is_read_or_refused(deadline: str, attempt: str) -> None:
    try:
        call = RequestHeaders.of(GivenDelivery(b"", {"id": "s", "deadline": deadline, "attempt": attempt}), CLOCKS)
    except BadRequest:
        return
    assert call.remaining is not None
    assert call.remaining <= MAX_DEADLINE_MILLISECONDS / 1000
    assert 1 <= call.key.attempt <= MAX_ATTEMPT


@pytest.mark.parametrize("properties", [{"deadline": "9" * 400}, {"attempt": "9" * 400}, {"attempt": "0"}])
def test_a_call_with_a_number_out_of_range_is_refused(properties: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        RequestHeaders.of(GivenDelivery(b"", {"id": "s", **properties}), CLOCKS)


@given(st.floats(0.0, 1e300))
def test_what_we_write_is_read_by_us(remaining: float) -> None:
    written = RequestHeaders(StreamKey("s", 1), "inbox", remaining).properties
    assert RequestHeaders.of(GivenDelivery(b"", written), CLOCKS).remaining is not None


@given(ANYTHING, ANYTHING)
@example("9" * 400, "0")
@example("0", "9" * 400)
def test_a_link_message_is_read_or_refused(number: str, seq: str) -> None:
    async def take() -> None:
        taken: list[Frame] = []
        controls = ControlSender(MemoryBus(), Topics(), lambda: 0.0)
        inbox = Inbox("inbox", controls, lambda: 0.0, lambda _, __, frame: taken.append(frame))
        inbox.take(GivenDelivery(b"[]", {"processor": "p", "link": f"p/{number}", "seq": seq}))
        assert not taken

    try:
        asyncio.run(take())
    except BadRequest:
        return
    assert 0 <= int(seq) <= MAX_NUMBER
    assert 0 <= int(number) <= MAX_NUMBER
