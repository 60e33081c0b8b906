"""Connections of the client -> what must be reopened, and what the broker has refused for too long."""

from collections.abc import Iterable, Iterator, Mapping

from tg_base.bus.pulsar.consumer import Consumer
from tg_base.bus.pulsar.sender import Sender
from tg_schema import TgError

WATCH_SECONDS = 0.5
"""Interval of the connection checks. A connection that is missing in two of them is reopened."""
REFUSAL_PAUSE_SECONDS = 10.0
"""How long a broker that answers may refuse a subscription before its reader gets the error."""


class Silence:
    """The connections that are missing now; belongs to the event loop.

    Attributes:
        suspect: whether a send has timed out since the last check.
        mending: whether a reopening is in progress.
    """

    def __init__(self) -> None:
        self.suspect = False
        self.mending = False
        self._silent: set[Consumer] = set()
        self._refused_since: dict[Consumer, float] = {}

    def lasting(self, consumers: Iterable[Consumer], senders: Iterable[Sender]) -> set[Consumer] | None:
        """The consumers without a connection in two checks; None if there is nothing to reopen."""
        if self.mending:
            return None
        silent = {consumer for consumer in consumers if not consumer.connected}
        lasting, self._silent = silent & self._silent, silent
        # There are as many producers as inboxes. They are checked only after a send has timed out: without a connection
        # a send always does.
        suspect, self.suspect = self.suspect and any(sender.silent for sender in senders), False
        return lasting if lasting or suspect else None

    def take_refused(
        self, outcomes: Mapping[Consumer, TgError | None], now: float
    ) -> Iterator[tuple[Consumer, TgError]]:
        """The consumers that an answering broker has refused for too long, each with its error."""
        failed = {consumer: error for consumer, error in outcomes.items() if error is not None}
        self._refused_since = {consumer: self._refused_since.get(consumer, now) for consumer in failed}
        for consumer, error in failed.items():
            if now - self._refused_since[consumer] > REFUSAL_PAUSE_SECONDS:
                yield consumer, error
