"""Unreadable or harmful message -> a dead-letter topic beside its queue, for the operator."""

import structlog

from tg_base.bus import Bus
from tg_base.telemetry import POISON
from tg_schema import TgError
from tg_schema.errors import TooLarge
from tg_schema.topics import Topics

log = structlog.get_logger()


async def publish_dead_letter(bus: Bus, topics: Topics, queue: str, body: bytes, reason: str) -> bool:
    """Count a message that no processor should get, and publish it as a dead letter.

    Args:
        bus: carries it.
        topics: the names of our own topics.
        queue: the topic that it came from.
        body: its bytes; if they are too large for a message with the reason, only the reason is published.
        reason: why no processor should get it.

    Returns:
        Returns whether the bus has accepted it; otherwise the log says so.
    """
    POISON.labels(queue).inc()
    topic = topics.dead_letter(queue)
    try:
        try:
            await bus.publish(topic, body, {"reason": reason})
        except TooLarge:
            await bus.publish(topic, b"", {"reason": reason})
    except TgError as failure:
        log.warning("dead_letter.failed", topic=queue, error=failure.type)
        return False
    return True
