"""SDK's way to make a TLS context -> one context for all models of a process that trust the same certificates."""

import os
import ssl
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

MAX_CONTEXTS = 16
"""Contexts that are kept; each takes about a megabyte, and 10 ms or more to make."""
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Where the environment names other certificates than those that the SDK brings."""


def share_tls(create: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """The context that `create` makes; another one once the environment names other certificates or they have changed.

    Any thread may call it. Nobody may change the context.
    """
    return _make(create, tuple(_look_at(os.environ.get(name)) for name in _VARIABLES))


def _look_at(named: str | None) -> tuple[str, int] | None:
    """A file or folder and the time of its last change, so that a certificate that was renewed is read."""
    if not named:
        return None
    place = Path(named)
    try:
        # A file of a folder may be written anew without a change of the folder.
        entries = place.iterdir() if place.is_dir() else ()
        return named, max(each.stat().st_mtime_ns for each in (place, *entries))
    except OSError:
        return named, 0


@lru_cache(MAX_CONTEXTS)
def _make(create: Callable[[], ssl.SSLContext], _certificates: object) -> ssl.SSLContext:
    return create()
