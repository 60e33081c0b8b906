"""Events of concurrent messages -> one message after the other, for a reader."""

from collections.abc import Iterator

from tg_client import AgentEvent

Key = tuple[str | None, type[AgentEvent]]


class MessageOrder:
    """Passes one message on as it comes; others wait for its end, in the order of their beginnings."""

    def __init__(self) -> None:
        self._live: Key | None = None
        self._waiting: dict[Key, list[AgentEvent]] = {}

    def take(self, event: AgentEvent) -> Iterator[AgentEvent]:
        """The events that can be shown after this one."""
        key = event.message_id, type(event)
        if self._live not in {None, key}:
            self._waiting.setdefault(key, []).append(event)
            return
        yield event
        self._live = None if event.complete else key
        while self._live is None and self._waiting:
            key = next(iter(self._waiting))
            yield from self._through(key)

    def rest(self) -> Iterator[AgentEvent]:
        """The waiting events, at the end."""
        while self._waiting:
            yield from self._through(next(iter(self._waiting)))

    def _through(self, key: Key) -> Iterator[AgentEvent]:
        events = self._waiting.pop(key)
        yield from events
        self._live = None if events[-1].complete else key
