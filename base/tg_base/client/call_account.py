"""Calls of models that a requestor asked for -> topic of usage: those whose processor cannot record them itself."""

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import chain
from typing import Final

from msgspec.structs import replace

from tg_base.bus import Bus
from tg_base.client.asked_call import MAX_KEPT_BYTES, AskedCall
from tg_base.client.response_stream import AskedStream
from tg_base.protocol import Presence, UsageWriter
from tg_base.runtime import running
from tg_schema import Usage
from tg_schema.errors import Unavailable
from tg_schema.topics import Topics

KEPT_CALL_CHECKS: Final = 24
"""Checks for silence, four in a heartbeat interval, for which a call that is over is known: so long after a process has
died its death is noticed, and the records of its last moment are missing."""
FLUSH_SECONDS: Final = 1.0


class CallAccount:
    """Records what dead processes and plain peers do not. What a dead process has recorded itself counts once.

    Args:
        bus: gets the records.
        topics: where it gets them.
    """

    def __init__(self, bus: Bus, topics: Topics) -> None:
        self._usage = UsageWriter(bus, topics.usage)
        # The calls that are over, by the check for silence before which they ended. In one process nobody dies alone.
        self._over: deque[list[AskedCall]] = deque([[]], maxlen=1 if bus.in_process else KEPT_CALL_CHECKS)

    def running(self) -> AbstractAsyncContextManager[object]:
        """Records are published while the block runs."""
        return running(self._usage.run())

    async def flush(self) -> None:
        """Wait for a moment until the bus has all records."""
        await self._usage.flush(FLUSH_SECONDS)

    def close(self, stream: AskedStream) -> None:
        """A stream is over. Its call is recorded, if a plain peer answered it, or else remembered for a while."""
        call = stream.see_call()
        if call is None:
            return
        if call.processor is None and stream.route.plain:
            self._usage.put(call.make_record())
            return
        if len(call.last) > MAX_KEPT_BYTES:
            call.drop_answer()
        self._over[-1].append(call)

    def check(self, streams: Iterable[AskedStream], dead: Mapping[str, tuple[Presence, ...]]) -> None:
        """Record the calls of processes that are found dead in a check for silence, and forget the oldest calls.

        Args:
            streams: what runs.
            dead: what they have announced.
        """
        if dead:
            for stream in streams:
                # While it fetches a request, it has not begun.
                if stream.processor in dead and not stream.fetching:
                    self.lose(stream, dead)
            for call in chain(*self._over):
                # Who has left at once may have been heard before its request was begun.
                if call.begun and call.processor in dead:
                    self._record(call, dead)
        self._over.append([])

    def lose(self, stream: AskedStream, dead: Mapping[str, tuple[Presence, ...]]) -> None:
        """The process that answers a stream is dead; the arguments are those of `check`."""
        call = stream.see_call(Unavailable.type)
        if call is not None:
            self._record(call, dead)

    def _record(self, call: AskedCall, dead: Mapping[str, tuple[Presence, ...]]) -> None:
        # For a request that was refused, no provider may have been asked.
        if (record := call.make_record()).usage != Usage():
            services = (service for served in dead.values() for service in served if call.model in service.models)
            provider = next((service.provider for service in services), "")
            self._usage.put(replace(record, provider=provider))
