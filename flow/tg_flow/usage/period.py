"""Words of a question -> hours: the beginning and end of the period to sum. All times are UTC: a day has 24 hours."""

import re
from datetime import UTC, datetime
from typing import Final

from tg_schema.errors import BadRequest

HOUR_SECONDS: Final = 3600
LAST_SECOND: Final = 4_102_444_800
"""The year 2100. A call with a later end has a wrong clock, and counts at the time when its record is read."""
_AGO = re.compile(r"([0-9]{1,6})([hdw])")
_UNITS: Final = {"h": HOUR_SECONDS, "d": 24 * HOUR_SECONDS, "w": 7 * 24 * HOUR_SECONDS}
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")


def find_period(since: str, until: str | None, now: float) -> tuple[int, int]:
    """The first hour of the period, and the first hour after it, in seconds since the epoch.

    Raises:
        BadRequest: a word is not a time, or the period is empty.
    """
    begins = _read("since", since, now) // HOUR_SECONDS * HOUR_SECONDS
    ends = -(-(_read("until", until, now) if until else int(now) + 1) // HOUR_SECONDS) * HOUR_SECONDS
    ends = min(ends, LAST_SECOND)
    if begins >= ends:
        raise BadRequest("the period is empty: `since` must be before `until`, and before now").at("since")
    return begins, ends


def show_hour(second: int) -> str:
    """An hour in the form that answers show."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:00Z")


def _read(field: str, text: str, now: float) -> int:
    if ago := _AGO.fullmatch(text):
        return max(0, int(now) - int(ago[1]) * _UNITS[ago[2]])
    try:
        read = datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)
        return max(0, int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()))
    except (ValueError, OverflowError):
        example = "write a time in UTC, such as 2026-11-01 or 2026-11-01T13:00Z, or how long ago, such as 36h, 7d or 4w"
        raise BadRequest(f"`{field}` is no time: {example}").at(field) from None
