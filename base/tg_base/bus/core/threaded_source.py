"""Blocking receive -> callbacks: a thread for a busy subscription, where it costs less than callbacks."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol, TypeVar

import structlog
from typing_extensions import override

from tg_base.bus.core.api import Delivery
from tg_base.bus.core.bounded_reader import Source
from tg_base.runtime import translate_defects
from tg_schema import TgError
from tg_schema.errors import BusError

log = structlog.get_logger()

JOIN_TIMEOUT_SECONDS = 5.0
"""Seconds that `close` waits for the thread to end."""

_DEFECT = "the thread that receives from the bus has failed; its log says why"

Raw = TypeVar("Raw")


class BlockingSource(Source[Raw], Protocol[Raw]):
    """A subscription that can also be waited for."""

    def wait(self) -> Raw:
        """The next message, as `receive` passes it on. Blocks without a time limit.

        Raises:
            TgError: the source is closed or has failed.
        """


class ThreadedSource(Source[Raw]):
    """A source that waits in a thread of its own.

    Args:
        source: closed with this one. Nobody else receives from it.
    """

    def __init__(self, source: BlockingSource[Raw]) -> None:
        self._source = source
        self._requests: SimpleQueue[Callable[[Raw | TgError], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="bus-reader", daemon=True)
        self._thread.start()

    @override
    def receive(self, taken: Callable[[Raw | TgError], None]) -> None:
        self._requests.put(taken)

    @override
    def open(self, message: Raw) -> Delivery:
        return self._source.open(message)

    @override
    def close(self) -> None:
        self._source.close()
        self._requests.put(None)
        self._thread.join(JOIN_TIMEOUT_SECONDS)

    def _run(self) -> None:
        while (taken := self._requests.get()) is not None:
            taken(self._wait())
        # A receive that was requested while the source closed is answered too, with the error.
        while not self._requests.empty():
            if (taken := self._requests.get()) is not None:
                taken(self._wait())

    def _wait(self) -> Raw | TgError:
        try:
            # Without the translation, the tasks that wait for this thread would wait for ever.
            with translate_defects(BusError, _DEFECT, "bus_reader.died", log):
                return self._source.wait()
        except TgError as error:
            return error
