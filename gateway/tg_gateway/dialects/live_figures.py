"""Dialect -> gateway: what the gateway does now, and how one of its streams is stopped."""

from collections.abc import AsyncGenerator
from typing import Final

from tg_schema.errors import NotFound


class LiveFigures:
    """What a gateway does now: nothing, where none runs. `sees` is always as `Call.sees`."""

    def show(self, sees: str | None) -> bytes:
        """The JSON of a `LiveDocument`.

        Raises:
            NotFound: no gateway runs here.
        """
        raise NotFound("no gateway runs in this process")

    def follow(self, sees: str | None) -> AsyncGenerator[bytes, None]:
        """The document as a server-sent event, then one with its changes every second, until the gateway leaves.

        A reader that is late gets the whole document anew. After some minutes the stream ends, so that a key is
        checked again.

        Raises:
            NotFound: as `show`.
            RateLimited: too many follow.
        """
        raise NotFound("no gateway runs in this process")

    def stop(self, stream: str, sees: str | None) -> None:
        """End a stream with the error `Cancelled`, which stops its model.

        Raises:
            NotFound: it has ended, is another key's, or never was.
        """
        raise NotFound("no gateway runs in this process")


NO_FIGURES: Final = LiveFigures()
