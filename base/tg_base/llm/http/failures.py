"""Provider's connection -> our errors: the timeout to connect, and the messages when connecting or reading fails."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tg_base.runtime import TOO_MANY_FILES, descriptors
from tg_schema.errors import ProviderAuth, Unavailable

CONNECT_TIMEOUT_SECONDS = 10.0
"""Timeout to connect in seconds, TLS included; `guard_stream` times everything after it."""

UNREACHABLE = "the provider cannot be reached; check its base_url, the network and whether it runs"
UNREACHABLE_BY_PROXY = (
    "the provider cannot be reached through the proxy that HTTPS_PROXY or HTTP_PROXY names; check the proxy and "
    "base_url, or name the provider's host in NO_PROXY"
)
BROKEN = "the connection to the provider broke before the answer was complete; ask again"
SLOW = f"the provider did not take a connection within {CONNECT_TIMEOUT_SECONDS:g} s"
_CREDENTIALS = "the processor's credentials gave no access token; its operator must check them and what they may do"


def unreachable(sentence: str = UNREACHABLE) -> Unavailable:
    """The error for a connection that could not be opened, unless this process may open no more."""
    return Unavailable(TOO_MANY_FILES if descriptors.look() else sentence)


class Failures(msgspec.Struct, frozen=True):
    """The exceptions of an SDK that gets no credentials for a request.

    Attributes:
        unreachable: the server that issues access tokens cannot be reached.
        credentials: the credentials yield no access token.
    """

    unreachable: tuple[type[Exception], ...] = ()
    credentials: tuple[type[Exception], ...] = ()

    @contextmanager
    def translate(self) -> Iterator[None]:
        """Enter it around the SDK's work on a request.

        Raises:
            Unavailable, ProviderAuth: instead of these exceptions.
        """
        try:
            yield
        except self.unreachable:
            raise unreachable() from None
        except self.credentials:
            raise ProviderAuth(_CREDENTIALS) from None


NO_FAILURES = Failures()
"""For an SDK whose only credential is a key."""
