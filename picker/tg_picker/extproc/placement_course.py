"""Envoy's view of a request -> scheduler: one placement, begun, moved to a fallback and released."""

from collections.abc import Callable

from tg_picker.core import Endpoint, InstanceRequest, InstanceUsage, Pick
from tg_picker.pools import Dispatcher
from tg_picker.status import RequestRecord

LoadReader = Callable[[Endpoint, str], None]
"""Takes the load header of an endpoint's response."""
NOT_FOUND = 404
MIN_ERROR_STATUS = 400


class PlacementCourse:
    """The course of one picked request. See `Course`.

    Args:
        dispatcher: who picked.
        pick: what it picked.
        request: for what.
        clock: the scheduler's, in seconds.
        read_load: takes what the endpoint says of its load.
        record: is notified of the request's progress, for the page and the metrics.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pick: Pick,
        request: InstanceRequest,
        clock: Callable[[], float],
        read_load: LoadReader,
        *,
        record: RequestRecord,
    ) -> None:
        self._dispatcher = dispatcher
        self._request = request
        self._clock = clock
        self._read_load = read_load
        self._pick = pick
        self._endpoint = pick.endpoint
        self._placement = pick.placement
        self._record = record

    def served(self, address: str) -> None:
        """Move the placement to the fallback that the data plane used."""
        if address == self._endpoint.address or self._placement.ended:
            return
        fallbacks = self._pick.fallbacks
        place = next((at for at, each in enumerate(fallbacks) if each.address == address), None)
        if place is None:
            return
        used = fallbacks[place]
        # Envoy also asks a fallback after a 404, and does not say why.
        for skipped in (self._endpoint, *fallbacks[:place]):
            if self._request.adapter is not None:
                self._dispatcher.scheduler.forget_adapter(skipped, self._request.adapter, self._clock())
        # The picked endpoint did not answer: counting there would keep others away from it.
        moved = self._dispatcher.move(self._placement, self._request, used, self._clock())
        if moved is not None:
            self._endpoint, self._placement = used, moved.placement
            self._record.move(used.name or used.address)

    def respond(self, status: int, load: str) -> None:
        """Learn from the response's status and load header."""
        self._record.respond(status)
        if status == NOT_FOUND and self._request.adapter is not None:
            self._dispatcher.scheduler.forget_adapter(self._endpoint, self._request.adapter, self._clock())
        if load:
            self._read_load(self._endpoint, load)

    def begin(self) -> None:
        """Report the first token, which an error does not have."""
        if self._record.status >= MIN_ERROR_STATUS:
            return
        now = self._clock()
        self._placement.first_token(now)
        self._record.first_token(now)

    def end(self, usage: InstanceUsage | None) -> None:
        """Release the placement."""
        now = self._clock()
        self._placement.finish(usage, now)
        self._record.end(usage, now)
