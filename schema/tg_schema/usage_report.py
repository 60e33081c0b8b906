"""Question about usage -> rows of sums."""

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from tg_schema.completion import COUNTS, Usage
from tg_schema.deltas import Count
from tg_schema.errors import Error
from tg_schema.stream_record import StreamRecord

USAGE_FIELDS: Final = (
    *("hour", "day", "month", "key", "customer", "tags", "door", "flow"),
    *("model", "provider", "upstream_model", "outcome"),
)
"""The fields by which usage can be summed."""
USAGE_SUMS: Final = ("calls", *COUNTS, "estimated_token", "uncounted_calls", "cost", "unpriced_calls")
"""The other fields of a row, in the order of columns."""


class UsageRequest(msgspec.Struct, frozen=True):
    """Which sums to answer with. The unit is the hour, UTC: `since` is rounded down to it, and `until` up.

    Attributes:
        by: fields of `USAGE_FIELDS`; there is a row for each combination of their values; empty = one row in all.
        since: a time such as "2026-11-01" or "2026-11-01T13:00Z" (UTC), or how long ago, as "36h", "7d" or "4w".
        until: the same, exclusive; None = up to now.
        key: the only key whose usage counts; None = all keys.
        streaming: whether the rows come in several records.
    """

    by: tuple[str, ...] = ()
    since: str = "7d"
    until: str | None = None
    key: str | None = None
    streaming: bool = False


class UsageRow(Usage, frozen=True, omit_defaults=True):
    """One sum, with the tokens of `Usage`.

    The fields of the question's `by` are set. Null, of tokens or cost, is unknown for every call.

    Attributes:
        hour: when the hour began, as "2026-11-01T13:00Z"; `day` and `month` as "2026-11-01" and "2026-11".
        tags: the key's tags, separated by commas.
        calls: calls of models: retries count, too.
        estimated_token: tokens of prompts and answers, of calls whose counts are estimates.
        uncounted_calls: calls of which the tokens of prompt or answer are unknown.
        cost: in nano-dollars, of the calls whose cost is known.
        unpriced_calls: the others.
    """

    hour: str | None = None
    day: str | None = None
    month: str | None = None
    key: str | None = None
    customer: str | None = None
    tags: str | None = None
    door: str | None = None
    flow: str | None = None
    model: str | None = None
    provider: str | None = None
    upstream_model: str | None = None
    outcome: str | None = None
    calls: Count = 0
    estimated_token: Count = 0
    uncounted_calls: Count = 0
    cost: int | None = None
    unpriced_calls: Count = 0


class UsageResponse(StreamRecord, msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows, in the order of their fields.

    Attributes:
        since: the first hour that counts.
        until: the first one that does not count any more.
        lasting: whether the sums outlive the process that keeps them; otherwise they begin with its start.
    """

    rows: tuple[UsageRow, ...] = ()
    since: str = ""
    until: str = ""
    lasting: bool = False
    error: Error | None = None
    end_of_stream: bool | None = False

    @classmethod
    def join_whole(cls, records: Sequence[Self]) -> Sequence[Self]:
        """One record with the rows of all."""
        rows = tuple(row for record in records for row in record.rows)
        return (msgspec.structs.replace(records[-1], rows=rows),)

    def cut(self, size: int) -> Sequence[Self]:
        """Itself: the service sends records of a few hundred rows, whose texts are short."""
        return (self,)
