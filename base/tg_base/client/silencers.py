"""Requestor -> dead letters: a request over which two processors fell silent is refused, and kept for an operator."""

import asyncio

import structlog

from tg_base.bus import Bus
from tg_base.client.response_stream import AskedStream
from tg_base.protocol import publish_dead_letter
from tg_schema.errors import BadRequest
from tg_schema.topics import Topics

log = structlog.get_logger()

MAX_SILENCED = 2
"""Processors that may fall silent over a request. One may have been killed or cut off by chance; a second one is no
coincidence."""


class Silencers:
    """Counts the processors that fell silent over each request.

    Args:
        bus: carries the dead letters.
        topics: the names of our own topics.
        tasks: holds the tasks that publish; cancelled with the requestor.
    """

    def __init__(self, bus: Bus, topics: Topics, tasks: set[asyncio.Task[None]]) -> None:
        self._bus = bus
        self._topics = topics
        self._tasks = tasks

    def refuse(self, stream: AskedStream) -> bool:
        """Note that a processor fell silent while it had this request; True if it is the last one that gets it."""
        stream.silenced += 1
        if stream.begun or stream.silenced < MAX_SILENCED:
            return False
        reason = f"{stream.silenced} processors fell silent while they had this request, so no other one gets it"
        log.warning("stream.silenced", **stream.span.fields, attempt=stream.attempt, processor=stream.processor)
        task = asyncio.create_task(self._keep(stream.route.request, stream.body, reason))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        stream.fail(BadRequest(f"{reason}; change it, or ask the operator, who finds it among the dead letters"))
        return True

    async def _keep(self, queue: str, body: bytes, reason: str) -> None:
        await publish_dead_letter(self._bus, self._topics, queue, body, reason)
