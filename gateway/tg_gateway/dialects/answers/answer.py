"""Dialect -> gateway: answers that no service has to be asked for, whole or by and by."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field

from tg_schema import TgError


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that no service has to be asked for: a list of models, a refusal.

    Attributes:
        headers: further ones. `X-Request-Id` and, where they are known, `Retry-After`, `Allow` and `WWW-Authenticate`
            are the gateway's.
    """

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


def _say_nothing(_: TgError) -> bytes:
    return b""


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer whose bytes come by and by: what is kept, while it is being made.

    Attributes:
        parts: iterated once, and closed. A TgError before the first bytes is refused; later `fail` is asked.
        content_type: as a writer's, like the others.
        headers: further ones.
        keep_alive: what is sent in silence.
        fail: makes the last bytes over HTTP after an error behind the first ones; then the connection breaks without an
            orderly end. On a WebSocket the dialect's conversation tells the error.
    """

    parts: AsyncGenerator[bytes, None]
    content_type: str
    headers: Mapping[str, str]
    keep_alive: bytes
    fail: Callable[[TgError], bytes] = _say_nothing
