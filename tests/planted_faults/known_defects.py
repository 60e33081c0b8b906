"""The protocol's known defects, each of which was there once: the simulation finds them before each change lands."""

from typing import Final

from tests.planted_faults.fault import Fault, Place

KNOWN: Final = (
    Fault(
        "streams hang when their gateway was silent and returned",
        "base/tg_base/client/attempts.py",
        "elif processor is not None and attempt.link < self._presence.over_below(processor):",
        "elif False:",
        until="ends,starves",
        seed=112,
    ),
    Fault(
        "an idle flow holds the slot",
        "base/tg_base/server/processor.py",
        "            await self._slots.wait(route)\n"
        "            if descriptors.short:\n"
        "                await descriptors.until_enough()\n"
        "            delivery = await anext(requests)\n",
        "            held = Slot(self._slots, route)\n"
        "            while not await held.take():\n"
        "                pass\n"
        "            delivery = await anext(requests)\n",
        also=(
            Place(
                "base/tg_base/server/processor.py",
                "                slot = await self._admit(route, delivery, call)\n",
                "                slot = None if self._drop_unwanted(route, delivery, call) else held\n",
            ),
        ),
        until="starves,needless-error",
        seed=25,
    ),
    Fault(
        "a reader that ends leaves its process deaf",
        "base/tg_base/protocol/subscriptions.py",
        "        self._open.clear()\n        self._ended.set()\n        self._subscriptions.ended(self)\n",
        "        self._open.clear()\n",
        until="starves,ends,needless-error,rest",
        seed=74,
    ),
    Fault(
        "unreadable properties end the task that reads them",
        "base/tg_base/protocol/request_headers.py",
        "        with suppress(BadRequest):\n            stream =",
        "        if True:\n            stream =",
        until="defect",
        seed=356,
    ),
    Fault(
        "an old word that a request is wanted is believed",
        "base/tg_base/server/request_task.py",
        "if asked_at is not None and asyncio.get_running_loop().time() - asked_at < self._patience:",
        "if asked_at is not None:",
        also=(
            Place(
                "base/tg_base/server/request_task.py",
                "self._wanted, self._wanted_at = True, asked_at",
                "self._wanted, self._wanted_at = True, asyncio.get_running_loop().time()",
            ),
        ),
        until="paid-twice",
        seed=993,
    ),
    Fault(
        "what may have been delivered before is begun unasked",
        "base/tg_base/server/request_task.py",
        "_wanted = call.fresh or call.reply is None",
        "_wanted = True",
        until="paid-twice",
        seed=42,
    ),
    Fault(
        "what was sent past the queue and is not heard of is not queued",
        "base/tg_base/client/attempts.py",
        "if self._warm.is_over(stream, dead, self._clock()):",
        "if False:",
        until="ends,starves",
        seed=363,
    ),
    Fault(
        "a processor whose clock is ahead drops everything",
        "base/tg_base/protocol/request_headers.py",
        "clocks.delays(reply, delivery.age)",
        "(delivery.age, delivery.age)",
        until="starves,needless-error",
        seed=8,
    ),
)
