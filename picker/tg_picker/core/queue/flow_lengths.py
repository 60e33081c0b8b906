"""Request queue -> the flow with the most waiting requests, which makes room first when a band is full."""

from collections import defaultdict

from tg_picker.core.queue.waiting import Waiting


class FlowLengths:
    """Requests that wait, by flow, and which flow has the most. Every call costs O(1)."""

    __slots__ = ("_by_length", "_flows", "_longest")

    def __init__(self) -> None:
        self._flows: dict[str, dict[Waiting, None]] = {}
        self._by_length: defaultdict[int, dict[str, None]] = defaultdict(dict)
        self._longest = 0

    def length(self, flow: str) -> int:
        """Requests of a flow."""
        return len(self._flows.get(flow, ()))

    def add(self, waiting: Waiting) -> None:
        """Count a request that is not there."""
        requests = self._flows.setdefault(waiting.flow, {})
        self._move(waiting.flow, len(requests), len(requests) + 1)
        requests[waiting] = None

    def remove(self, waiting: Waiting) -> None:
        """Count a request no longer."""
        requests = self._flows[waiting.flow]
        self._move(waiting.flow, len(requests), len(requests) - 1)
        del requests[waiting]
        if not requests:
            del self._flows[waiting.flow]

    def newest_of_longest(self) -> Waiting | None:
        """The request that came last, of the flow that has the most."""
        if not self._longest:
            return None
        return next(reversed(self._flows[next(iter(self._by_length[self._longest]))]))

    def _move(self, flow: str, before: int, after: int) -> None:
        if before:
            names = self._by_length[before]
            del names[flow]
            if not names:
                del self._by_length[before]
        if after:
            self._by_length[after][flow] = None
        # Lengths change by one, so that the longest one is the old or the new length of this flow, or stays.
        if after > self._longest or (before == self._longest and before not in self._by_length):
            self._longest = after
