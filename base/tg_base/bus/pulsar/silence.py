"""Which subscriptions and producers have lost their connection, for how long, and whether the broker refuses them."""

from collections.abc import Iterable, Iterator, Mapping

from tg_base.bus.pulsar.consumer import Consumer
from tg_base.bus.pulsar.sender import Sender
from tg_schema import TgError

WATCH_SECONDS = 0.5
"""How often connections are looked at. One that is gone twice in a row is not coming back by itself at once."""
REFUSAL_PAUSE_SECONDS = 10.0
"""How long a broker that answers may refuse a subscription, until its reader is told."""


class Silence:
    """What is silent now; belongs to the event loop.

    Attributes:
        suspect: whether a send has timed out since connections were last looked at.
        mending: whether somebody opens anew what is silent.
    """

    def __init__(self) -> None:
        self.suspect = False
        self.mending = False
        self._silent: set[Consumer] = set()
        self._refused_since: dict[Consumer, float] = {}

    def lasting(self, consumers: Iterable[Consumer], senders: Iterable[Sender]) -> set[Consumer] | None:
        """What has been silent for a while; None where nothing is, or is mended already."""
        if self.mending:
            return None
        silent = {consumer for consumer in consumers if not consumer.connected}
        lasting, self._silent = silent & self._silent, silent
        # Producers are as many as there are inboxes, and without a connection their sends fail: no need to look.
        suspect, self.suspect = self.suspect and any(sender.silent for sender in senders), False
        return lasting if lasting or suspect else None

    def take_refused(
        self, outcomes: Mapping[Consumer, TgError | None], now: float
    ) -> Iterator[tuple[Consumer, TgError]]:
        """Those that the broker, which answers, has not let us open for too long, each with its error."""
        failed = {consumer: error for consumer, error in outcomes.items() if error is not None}
        self._refused_since = {consumer: self._refused_since.get(consumer, now) for consumer in failed}
        for consumer, error in failed.items():
            if now - self._refused_since[consumer] > REFUSAL_PAUSE_SECONDS:
                yield consumer, error
