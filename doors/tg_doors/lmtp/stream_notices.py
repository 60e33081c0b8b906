"""Progress of a stream that waits -> SYSTEM messages: queued, then loading if its model is opened, then started."""

from collections.abc import Callable


class StreamNotices:
    """The notices of one stream, for a client that accepts them.

    Args:
        tell: sends a notice of this kind.

    Attributes:
        taken: whether a processor is known to have the request.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.taken = False
        self._tell = tell
        self._loading = False
        self._started = False

    def queue(self, *, loading: bool) -> None:
        """The request is queued. Also sends `loading` if every processor of its model has yet to load it."""
        self._tell("queued")
        if loading:
            self._load()

    def open(self) -> None:
        """The processor that has the request opens the model first, even if other processors have it open."""
        self.taken = True
        self._load()

    def start(self) -> None:
        """A processor works on it."""
        self.taken = True
        if not self._started:
            self._started = True
            self._tell("started")

    def begin(self) -> None:
        """Its first items are about to be sent. After `loading`, `started` comes first, however early the items are."""
        self.taken = True
        if self._loading:
            self.start()

    def _load(self) -> None:
        if not (self._loading or self._started):
            self._loading = True
            self._tell("loading")
