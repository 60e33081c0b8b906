"""Writer of a log that was erased meanwhile -> the entries that it has left there, which nobody would find or erase."""

from tg_base.bus import Bus
from tg_gateway.relay.answer_log import AnswerLog


async def erase_remnant(bus: Bus, topic: str) -> None:
    """Erase a log that begins with no first entry. Call it after an append behind one.

    Either the erasure comes after that append, and covers it, or the log is found here without its first entry.

    Raises:
        BusError: the bus did not answer.
    """
    entries = await bus.read(topic)
    if entries and AnswerLog(entries[:1]).owner is None:
        await bus.erase(topic)
