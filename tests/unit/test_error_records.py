"""A time limit on the wire: it says which clock of an answer it was, to those who know the field, and only then."""

import msgspec
import pytest

from tg_schema import Error, TgError, decode, encode
from tg_schema.errors import Timeout


class OlderError(msgspec.Struct):
    """The record as an older peer reads it."""

    type: str | None = None
    message: str | None = None
    retry_after: float | None = None


@pytest.mark.parametrize("clock", [None, "total", "one of a newer peer"])
def test_the_clock_of_a_timeout_travels(clock: str | None) -> None:
    late = Timeout("late", retry_after=1.0)
    late.clock = clock
    read = TgError.of(decode(Error, encode(late.record)))
    assert isinstance(read, Timeout)
    assert (read.message, read.retry_after, read.clock) == ("late", 1.0, clock)


def test_an_error_without_a_clock_is_written_as_ever() -> None:
    assert encode(Timeout("late").record) == b'{"type":"timeout","message":"late","retry_after":null}'


def test_an_older_peer_reads_a_timeout_with_a_clock() -> None:
    late = Timeout("late")
    late.clock = "total"
    assert decode(OlderError, encode(late.record)) == OlderError("timeout", "late", None)
