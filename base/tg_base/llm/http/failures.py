"""Provider's connection -> our errors: how long one may take, and what is said when there is none or it breaks."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tg_schema.errors import ProviderAuth, Unavailable

CONNECT_TIMEOUT_SECONDS = 10.0
"""Seconds to a connection, TLS included; everything after it is timed by the stream's guard."""

UNREACHABLE = "the provider cannot be reached; check its base_url, the network and whether it runs"
BROKEN = "the connection to the provider broke before the answer was complete; ask again"
SLOW = f"the provider did not take a connection within {CONNECT_TIMEOUT_SECONDS:g} s"
_CREDENTIALS = "the processor's credentials gave no access token; its operator must check them and what they may do"


class Failures(msgspec.Struct, frozen=True):
    """The exceptions by which an SDK says that it has no credentials for a request.

    Attributes:
        unreachable: nobody was there to ask for them.
        credentials: they gave none.
    """

    unreachable: tuple[type[Exception], ...] = ()
    credentials: tuple[type[Exception], ...] = ()

    @contextmanager
    def translate(self) -> Iterator[None]:
        """Enter around what the SDK does for a request.

        Raises:
            Unavailable, ProviderAuth: in place of these exceptions.
        """
        try:
            yield
        except self.unreachable:
            raise Unavailable(UNREACHABLE) from None
        except self.credentials:
            raise ProviderAuth(_CREDENTIALS) from None


NO_FAILURES = Failures()
"""Of an SDK whose credentials are a key."""
