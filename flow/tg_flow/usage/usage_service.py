"""UsageRequest -> database -> UsageResponses: the sums of a period."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Final

from typing_extensions import override

from tg_base.server import Service
from tg_flow.usage.period import find_period, show_hour
from tg_flow.usage.usage_store import UsageStore
from tg_schema import ServiceSpec
from tg_schema.errors import BadRequest
from tg_schema.service_spec import USAGE
from tg_schema.usage_report import USAGE_FIELDS, UsageRequest, UsageResponse

MAX_ROWS: Final = 10_000
ROWS_PER_RECORD: Final = 200


class UsageService(Service[UsageRequest, UsageResponse]):
    """Answers from the sums. They do not include records that are still on the topic."""

    capacity = 2
    """Concurrent questions: each occupies a thread of the process, and the database reads for one at a time."""
    spec: ServiceSpec = USAGE  # type: ignore[type-arg,misc]

    def __init__(self, database: UsageStore) -> None:
        self._database = database

    @override
    async def on_request(self, request: UsageRequest) -> AsyncGenerator[UsageResponse, None]:
        if unknown := [name for name in request.by if name not in USAGE_FIELDS]:
            fields = ", ".join(USAGE_FIELDS)
            raise BadRequest(f"usage cannot be summed by {unknown[0][:64]!r}; `by` may name: {fields}").at("by")
        begins, ends = find_period(request.since, request.until, time.time())
        by = tuple(dict.fromkeys(request.by))
        rows = await asyncio.to_thread(self._database.find, by, begins, ends, request.key, MAX_ROWS + 1)
        if len(rows) > MAX_ROWS:
            raise BadRequest(f"more than {MAX_ROWS} rows: ask for a shorter period, or by fewer fields").at("by")
        for place in range(0, max(len(rows), 1), ROWS_PER_RECORD):
            yield UsageResponse(
                tuple(rows[place : place + ROWS_PER_RECORD]),
                show_hour(begins),
                show_hour(ends),
                lasting=self._database.lasting,
                end_of_stream=place + ROWS_PER_RECORD >= len(rows),
            )
