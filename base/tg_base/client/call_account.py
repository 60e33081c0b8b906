"""Calls whose processor cannot record them itself -> topic of usage: their requestor writes the records.

A plain peer writes no record, and a process that is killed takes the newest ones with it. What its requestor has seen
of the answer is enough to write them.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import chain
from time import time
from typing import Final

from msgspec.structs import replace

from tg_base.bus import Bus
from tg_base.client.attempt import Attempt
from tg_base.protocol import Presence, UsageWriter
from tg_base.runtime import running
from tg_schema import TextCompletionResponse, Usage, decode
from tg_schema.errors import BadRequest, Unavailable
from tg_schema.prompt_size import estimate_usage, measure_text
from tg_schema.topics import Topics
from tg_schema.usage_record import Outcome, Payer, UsageRecord

KEPT_CALL_CHECKS: Final = 24
"""For how many checks for silence (four in a heartbeat interval) a finished call is remembered. A death is noticed that
late, and the records of the dead process's last moment are missing."""
FLUSH_SECONDS: Final = 1.0
MAX_KEPT_BYTES: Final = 4096
"""Largest last record that is kept until its call is forgotten; vectors may have a megabyte."""
_NOTHING: Final = TextCompletionResponse()


class CallAccount:
    """Writes the records that dead processes and plain peers do not write.

    If a dead process has written its record itself, the call counts once.

    Args:
        bus: gets the records.
        topics: has the topic of usage.
    """

    def __init__(self, bus: Bus, topics: Topics) -> None:
        self._usage = UsageWriter(bus, topics.usage)
        # The finished calls, grouped by the check for silence before which they ended. A record replaces a large
        # answer. If there is only one process, no other one survives to check.
        kept = 1 if bus.in_process else KEPT_CALL_CHECKS
        self._over: deque[list[tuple[Attempt, UsageRecord | None]]] = deque([[]], maxlen=kept)

    def running(self) -> AbstractAsyncContextManager[object]:
        """Records are published while the block runs."""
        return running(self._usage.run())

    async def flush(self) -> None:
        """Wait for a moment until the bus has all records."""
        await self._usage.flush(FLUSH_SECONDS)

    def close(self, attempt: Attempt) -> None:
        """A stream is over. Record its call if a plain peer answered it; otherwise remember the call for a while."""
        if attempt.operation is None:
            return
        if attempt.processor is None and attempt.route.plain:
            self._usage.put(_make_record(attempt))
            return
        record = None
        if len(attempt.last) > MAX_KEPT_BYTES:
            record, attempt.last = _make_record(attempt), b""
        self._over[-1].append((attempt, record))

    def check(self, attempts: Iterable[Attempt], dead: Mapping[str, tuple[Presence, ...]]) -> None:
        """Record the calls of processes that are found dead in a check for silence, and forget the oldest calls.

        Args:
            attempts: the attempts that run.
            dead: the last announcements of the dead processes.
        """
        if dead:
            for attempt in attempts:
                # A processor that still fetches the request has not begun.
                if attempt.processor in dead and not attempt.fetching:
                    self.lose(attempt, dead)
            for attempt, record in chain(*self._over):
                # A caller that left at once may have left before its request was begun.
                if (attempt.accepted or attempt.pieces) and attempt.processor in dead:
                    self._record(record or _make_record(attempt), dead)
        self._over.append([])

    def lose(self, attempt: Attempt, dead: Mapping[str, tuple[Presence, ...]]) -> None:
        """The process that answers an attempt is dead; the arguments are those of `check`."""
        if attempt.operation is not None:
            self._record(_make_record(attempt, Unavailable.type), dead)

    def _record(self, record: UsageRecord, dead: Mapping[str, tuple[Presence, ...]]) -> None:
        # If the request was refused, perhaps no provider was asked.
        if record.usage != Usage():
            services = (service for served in dead.values() for service in served if record.model in service.models)
            provider = next((service.provider for service in services), "")
            self._usage.put(replace(record, provider=provider))


def _make_record(attempt: Attempt, error: str | None = None) -> UsageRecord:
    """The record of a call. If the call is incomplete, this type of error has ended it; None = its reader left."""
    try:
        last = decode(TextCompletionResponse, attempt.last)
    except BadRequest:
        last = _NOTHING
    kind = last.error.type if last.error is not None else None if attempt.complete else error
    outcome: Outcome = "failed" if kind else "complete" if attempt.complete else "left"
    usage = _estimate(attempt, last, complete=outcome == "complete")
    wall = time() - asyncio.get_running_loop().time()
    asked_at, span, route = int((wall + attempt.began_at) * 1000), attempt.span, attempt.route
    return UsageRecord(
        attempt.key.stream,
        attempt.begun_as or attempt.key.attempt,
        request=span.request,
        payer=Payer.of(span.payer),
        door=span.door or "",
        flow=route.flow,
        operation=attempt.operation or "",
        model=route.model or "",
        upstream_model=last.model or "",
        usage=usage,
        estimated=usage != last.usage,
        queued_at=asked_at,
        began_at=asked_at,
        ended_at=int((wall + (attempt.came_at or attempt.began_at)) * 1000),
        outcome=outcome,
        error=kind,
        unique=True,
    )


def _estimate(attempt: Attempt, last: TextCompletionResponse, *, complete: bool) -> Usage:
    pieces = attempt.pieces - (last.error is not None)
    if last.error is not None and not pieces:
        # Perhaps no provider was asked.
        return last.usage
    # The records of one stream differ only in their texts.
    letters = measure_text((last.response, last.reasoning, last.tool_calls))
    came = attempt.pieces - attempt.missed
    letters = attempt.received - came * (len(attempt.last) - letters)
    # The part that only the previous requestor has seen was, on average, as long.
    letters = letters * attempt.pieces // max(came, 1)
    answers = attempt.operation == "completion"
    return estimate_usage(last.usage, attempt.prompt_bytes, pieces, letters, complete=complete, answers=answers)
