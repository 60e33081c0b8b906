"""Planted faults of what waits: answers that wait for room, and requests that wait for a server of a pool."""

from typing import Final

from tests.planted_faults.fault import POOLS, Fault

_JOBS: Final = "gateway/tg_gateway/jobs/"
_INSTANCES: Final = "picker/tg_picker/core/"

WAITING: Final = (
    Fault(
        "an answer that waits is asked by whoever has its message",
        _JOBS + "claim.py",
        "        return self.running and self.log.maker == self.own\n",
        "        return self.running\n",
        worlds="waiting",
    ),
    Fault(
        "a message of the flex queue is acknowledged whatever became of it",
        _JOBS + "queue.py",
        "            if again is None:\n                delivery.ack()\n",
        "            if True:\n                delivery.ack()\n",
        worlds="waiting",
    ),
    Fault(
        "a model is asked before the log says so",
        _JOBS + "claim.py",
        "        if not await writer.note(label_asked(self.own, self.log.maker, origin)):\n"
        "            self._decided.set()\n            return False\n",
        "        return True\n",
        worlds="waiting",
    ),
    Fault(
        "a gateway that leaves keeps the messages of the flex queue",
        _JOBS + "queue.py",
        "            except asyncio.CancelledError:\n                self._deliveries.pop(message.name).nack()\n",
        "            except asyncio.CancelledError:\n                self._deliveries.pop(message.name).ack()\n",
        worlds="waiting",
    ),
    Fault(
        "who goes on with a kept stream begins behind none of its records",
        _JOBS + "runs.py",
        "        return self._relay.adopt(run.asked, run.entry, origin, run.claim.log.taken)\n",
        "        return self._relay.adopt(run.asked, run.entry, origin, 0)\n",
        worlds="kept",
    ),
    Fault(
        "a reader that goes on gets its last event again",
        "gateway/tg_gateway/dialects/event_cutter.py",
        "if number > self.after]",
        "if number >= self.after]",
        worlds="kept",
    ),
    Fault(
        "a server gets one request more than it may have",
        _INSTANCES + "queue/flow_control.py",
        "if self.scheduler.server(each).requests < most]",
        "if self.scheduler.server(each).requests <= most]",
        found_by=POOLS,
    ),
    Fault(
        "who waited behind one that leaves is not looked at",
        _INSTANCES + "queue/flow_control.py",
        "            queue.remove(waiting)\n            self._drop_if_empty(pool, queue)\n",
        "            self._drop_if_empty(pool, queue)\n",
        found_by=POOLS,
    ),
    Fault(
        "the end of a request wakes nobody",
        _INSTANCES + "queue/flow_control.py",
        "now: float\n    ) -> None:\n        self.changed()\n",
        "now: float\n    ) -> None:\n        pass\n",
        found_by=POOLS,
    ),
    Fault(
        "a server that was given to one who leaves stays counted",
        _INSTANCES + "queue/flow_control.py",
        "            waiting.made.placement.finish(None, now)\n",
        "            pass\n",
        found_by=POOLS,
    ),
)
