"""Since and until -> whole hours, UTC."""

from datetime import UTC, datetime

import pytest

from tg_flow.usage.period import find_period, show_hour
from tg_schema.errors import BadRequest

NOW = datetime(2026, 11, 29, 10, 20, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("since", "until", "shown"),
    [
        ("36h", None, ("2026-11-27T22:00Z", "2026-11-29T11:00Z")),
        ("7d", "1d", ("2026-11-22T10:00Z", "2026-11-28T11:00Z")),
        ("4w", None, ("2026-11-01T10:00Z", "2026-11-29T11:00Z")),
        ("2026-11-01", "2026-12-01", ("2026-11-01T00:00Z", "2026-12-01T00:00Z")),
        ("2026-10", "2026-11", ("2026-10-01T00:00Z", "2026-11-01T00:00Z")),
        ("2026-11-01T13:30Z", "2026-11-01T13:31Z", ("2026-11-01T13:00Z", "2026-11-01T14:00Z")),
        ("2026-11-01T13:30+05:30", "2026-11-02", ("2026-11-01T08:00Z", "2026-11-02T00:00Z")),
        # When clocks are set back in Europe, the day has 25 hours there, and 24 here.
        ("2026-10-25", "2026-10-26", ("2026-10-25T00:00Z", "2026-10-26T00:00Z")),
        ("2026-11-01", "9999-12-31T23:30", ("2026-11-01T00:00Z", "2100-01-01T00:00Z")),
        ("1d", "1d", ("2026-11-28T10:00Z", "2026-11-28T11:00Z")),
        ("0001-01-01T00:00+23:59", "1970-01-01T01:00Z", ("1970-01-01T00:00Z", "1970-01-01T01:00Z")),
    ],
)
def test_a_period(since: str, until: str | None, shown: tuple[str, str]) -> None:
    begins, ends = find_period(since, until, NOW)
    assert (show_hour(begins), show_hour(ends)) == shown


def test_up_to_now_is_up_to_the_end_of_this_hour() -> None:
    assert show_hour(find_period("1h", None, datetime(2026, 11, 29, 10, tzinfo=UTC).timestamp())[1]) == (
        "2026-11-29T11:00Z"
    )


@pytest.mark.parametrize("word", ["", "d", "-1d", "1.5d", "7 d", "0000001w", "99999-01-01", "1d\n", "٣d"])
def test_what_is_no_time(word: str) -> None:
    with pytest.raises(BadRequest, match="`since` is no time"):
        find_period(word, None, NOW)


@pytest.mark.parametrize(("since", "until"), [("2026-11-02", "2026-11-01"), ("2030-01-01", None)])
def test_an_empty_period(since: str, until: str | None) -> None:
    with pytest.raises(BadRequest, match="the period is empty"):
        find_period(since, until, NOW)
