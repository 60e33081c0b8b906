"""Dialect -> gateway: what all gateways do now, and how one of their streams is stopped."""

from collections.abc import AsyncGenerator
from typing import Final

from tg_schema.errors import NotFound


class LiveFigures:
    """What the gateways of a bus do now; this one, for a process without a gateway, refuses. `sees`: as `Call.sees`."""

    async def show(self, sees: str | None) -> bytes:
        """The JSON of a `LiveDocument`. It takes half a second, unless somebody requested it just before.

        Raises:
            NotFound: no gateway runs here.
        """
        raise NotFound("no gateway runs in this process")

    def follow(self, sees: str | None) -> AsyncGenerator[bytes, None]:
        """The document as a server-sent event, then one with its changes every second, until the gateway leaves.

        A reader that falls behind gets the whole document again. After some minutes the stream ends, so that a key is
        checked again.

        Raises:
            NotFound: as `show`.
            RateLimited: too many clients follow the document.
        """
        raise NotFound("no gateway runs in this process")

    async def stop(self, stream: str, sees: str | None) -> None:
        """End a stream with the error `Cancelled`, which stops its model.

        Raises:
            NotFound: the stream has ended or is another key's, or its gateway does not answer.
        """
        raise NotFound("no gateway runs in this process")


NO_FIGURES: Final = LiveFigures()
