"""Envoy's view of a request -> scheduler: one placement, which begins, may move to a fallback, and is released."""

from msgspec.structs import replace

from tg_picker.core import InstanceRequest, InstanceUsage, Pick
from tg_picker.picking import PoolPicker
from tg_picker.status import RequestRecord

NOT_FOUND = 404
MIN_ERROR_STATUS = 400


class PlacementCourse:
    """The progress of one picked request. See `Course`.

    Args:
        picker: the picker.
        pick: the server that it picked.
        request: the request.
        record: is notified of the request's progress, for the page and the metrics.
    """

    def __init__(self, picker: PoolPicker, pick: Pick, request: InstanceRequest, record: RequestRecord) -> None:
        self._picker = picker
        self._request = request
        self._pick = pick
        self._record = record

    def served(self, address: str) -> None:
        """Move the placement to the fallback that the data plane used."""
        if address == self._pick.endpoint.address or self._pick.placement.ended:
            return
        fallbacks = self._pick.fallbacks
        place = next((at for at, each in enumerate(fallbacks) if each.address == address), None)
        if place is None:
            return
        used = fallbacks[place]
        # Envoy also tries a fallback after a 404, without saying why.
        for skipped in (self._pick.endpoint, *fallbacks[:place]):
            if self._request.adapter is not None:
                self._picker.scheduler.forget_adapter(skipped, self._request.adapter, self._picker.clock())
        # The picked endpoint did not answer. If the request stayed counted there, others would avoid that server.
        moved = self._picker.dispatcher.move(self._pick.placement, self._request, used, self._picker.clock())
        if moved is not None:
            self._pick = replace(self._pick, endpoint=used, placement=moved.placement)
            self._record.move(used.name or used.address)

    def respond(self, status: int, load: str) -> None:
        """Learn from the response's status and load header."""
        self._record.respond(status)
        if status == NOT_FOUND and self._request.adapter is not None:
            self._picker.scheduler.forget_adapter(self._pick.endpoint, self._request.adapter, self._picker.clock())
        if load:
            self._picker.pools.read_load(self._pick.endpoint, load, self._picker.clock())

    def begin(self) -> None:
        """Report the first token. An error response has none."""
        if self._record.status >= MIN_ERROR_STATUS:
            return
        now = self._picker.clock()
        self._pick.placement.first_token(now)
        self._record.first_token(now)

    def end(self, usage: InstanceUsage | None) -> None:
        """Release the placement."""
        now = self._picker.clock()
        self._pick.placement.finish(usage, now)
        self._record.end(usage, now)
