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
    """An answer whose bytes come over time: a kept answer that is still being made.

    Attributes:
        parts: iterated once, and closed. A TgError before the first bytes becomes a refusal; later, `fail` writes the
            end.
        content_type: as in `Writer`.
        headers: further headers.
        keep_alive: bytes sent during silence.
        fail: makes the last bytes over HTTP if an error comes after the first bytes; then the connection is cut. On a
            WebSocket, the dialect's conversation sends the error.
    """

    parts: AsyncGenerator[bytes, None]
    content_type: str
    headers: Mapping[str, str]
    keep_alive: bytes
    fail: Callable[[TgError], bytes] = _say_nothing
