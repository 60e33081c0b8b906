"""WebSocket messages -> dialect -> requests: the interfaces of a WebSocket protocol and of its socket."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import Any, Protocol

from tg_base.protocol import Route
from tg_gateway.dialects.call import Ask
from tg_gateway.dialects.catalogue import Catalogue
from tg_gateway.dialects.kept_answers import KeptAnswers
from tg_gateway.dialects.output import Output
from tg_gateway.dialects.writer import Writer
from tg_schema import TgError

Name = Hashable
"""Identifies a request on its socket; chosen by the client."""


class Socket(Protocol):
    """One client's WebSocket. None of its methods waits.

    Attributes:
        max_name: characters that a request's name may have.
    """

    max_name: int

    @property
    def catalogue(self) -> Catalogue:
        """The services and models that can be asked now."""

    @property
    def key(self) -> str | None:
        """The name of the key for its next request; None = it must show a (new) token."""

    @property
    def kept(self) -> KeptAnswers:
        """The kept answers of its key that were requested over WebSockets."""

    def authenticate(self, token: str | None) -> None:
        """Check a token; until one is right, `key` is None.

        Raises:
            Unauthorized: the token is unknown.
            RateLimited: too many wrong tokens came from this address.
        """

    def check_size(self, size: int) -> None:
        """Refuse a request of this size if it is too large. `ask` checks it; a protocol may do so before it reads.

        Raises:
            TooLarge: the request has more bytes than the mount allows.
        """

    def send(self, frames: Output) -> None:
        """Send one or more `text_frame`s, together with what else is ready."""

    def is_running(self, name: Name) -> bool:
        """Whether a request of this name has not ended yet."""

    def ask(
        self,
        name: Name,
        route: Route[Any, Any],
        size: int,
        parse: Callable[[], Ask | Awaitable[Ask]],
        fail: Callable[[TgError], Output],
    ) -> None:
        """Ask a service; the writer's bytes, framed by it as WebSocket messages, go to the client as they come.

        An answer with a `Background`, or one that is kept, is made independently of the socket, and continues when the
        socket is closed. The client gets the parts of the answer.

        Args:
            name: the request's name, which no running request has.
            route: the service, for the log and the metrics.
            size: bytes of the request.
            parse: reads the request, in steps if that takes long; an error that it raises is the request's answer.
            fail: the frames that end a request which failed, at any time.

        Raises:
            RateLimited: too many requests run on this socket.
            TooLarge: the request is too large.
        """

    def follow(
        self, name: Name, kept: str, parts: AsyncGenerator[bytes, None], fail: Callable[[TgError], bytes]
    ) -> None:
        """Send the parts of an answer that is made in the background, as they come.

        Args:
            name: as for `ask`.
            kept: the name of the answer.
            parts: frames, iterated once and closed; a TgError ends them.
            fail: as for `ask`.

        Raises:
            RateLimited: as `ask`.
        """

    def attach(
        self,
        name: Name,
        stream: str,
        after: int,
        restore: Callable[[bytes], Writer[Any]],
        fail: Callable[[TgError], Output],
    ) -> None:
        """Send the new events of a kept stream as they come. The stream continues when the socket is closed.

        Args:
            name: as for `ask`.
            stream: its id.
            after: as for `KeptStreams.follow`.
            restore: as for `KeptStreams.follow`.
            fail: as for `ask`.

        Raises:
            RateLimited: as `ask`.
        """

    def cancel(self, name: Name) -> None:
        """Stop a request, also one in the background. Does nothing if it has ended."""


class Conversation(Protocol):
    """One protocol on one socket."""

    def take(self, message: bytes) -> None:
        """Take a message. Even a malformed one is answered, and disturbs no other request. Raises nothing."""

    def drain(self) -> None:
        """Refuse new requests from now on: the gateway closes the socket when the running ones have ended."""
        return
