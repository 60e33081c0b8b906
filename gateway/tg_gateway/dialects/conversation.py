"""WebSocket messages -> dialect -> requests: what a protocol of sockets does, and what its socket does for it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import Any, Protocol

from tg_base.protocol import Route
from tg_gateway.dialects.answers import KeptAnswers
from tg_gateway.dialects.call import Ask
from tg_gateway.dialects.catalogue import Catalogue
from tg_gateway.dialects.output import Output
from tg_schema import TgError

Name = Hashable
"""What tells the requests of one socket apart; the client's own word for it."""


class Socket(Protocol):
    """One client's WebSocket. Nothing of it waits.

    Attributes:
        catalogue: all that can be asked for.
        max_name: characters that a request's name may have.
    """

    catalogue: Catalogue
    max_name: int

    @property
    def key(self) -> str | None:
        """The name of the key that its next request has; None = it must show a token, for instance a new one."""

    @property
    def kept(self) -> KeptAnswers:
        """What its key keeps of the answers that sockets have asked for."""

    def authenticate(self, token: str | None) -> None:
        """Check a token; until one is right, `key` is None.

        Raises:
            Unauthorized: it is not known.
            RateLimited: too many wrong ones came from this address.
        """

    def check_size(self, size: int) -> None:
        """Refuse a request of this size if it is too large. `ask` checks it; a protocol may do so before it reads.

        Raises:
            TooLarge: it has more bytes than the mount allows.
        """

    def send(self, frames: Output) -> None:
        """Send, together with what else is ready: one or more of `text_frame`."""

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

        An `Ask` with a `Background` is made apart from the socket, and goes on when that is closed. The client gets
        the parts of the background's answer.

        Args:
            name: no running request has it.
            route: what the log and the metrics name.
            size: bytes of the request.
            parse: reads the request, in steps if that takes long; what it raises is the request's answer.
            fail: the frames that end a request which failed, at any time.

        Raises:
            RateLimited: too many run on this socket.
            TooLarge: the request.
        """

    def follow(
        self, name: Name, kept: str, parts: AsyncGenerator[bytes, None], fail: Callable[[TgError], bytes]
    ) -> None:
        """Send what comes of an answer that is made in the background.

        Args:
            name: as for `ask`.
            kept: the name of the answer.
            parts: frames, iterated once and closed; a TgError ends them.
            fail: as for `ask`.

        Raises:
            RateLimited: as `ask`.
        """

    def cancel(self, name: Name) -> None:
        """Stop a request, also one that is made in the background; one that has ended is left alone."""


class Conversation(Protocol):
    """One protocol on one socket."""

    def take(self, message: bytes) -> None:
        """A message came. Whatever it is, it is answered, and disturbs no other request; nothing is raised."""

    def drain(self) -> None:
        """The gateway takes no more requests, and will close the socket when those that run have ended."""
        return
