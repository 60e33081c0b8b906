"""Dialect -> gateway: answers that no service has to be asked for, whole or by and by."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field


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


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """An answer whose bytes come by and by: what is kept, while it is being made.

    Attributes:
        parts: iterated once, and closed. A TgError before the first bytes is refused; later it cuts the connection.
        content_type: as a writer's, like the others.
        headers: further ones.
        keep_alive: what is sent in silence.
    """

    parts: AsyncGenerator[bytes, None]
    content_type: str
    headers: Mapping[str, str]
    keep_alive: bytes
