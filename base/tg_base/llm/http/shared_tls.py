"""An SDK's TLS context -> one shared by all models of a process that trust the same certificates."""

import os
import ssl
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from threading import Lock

MAX_CONTEXTS = 16
"""Contexts that are kept; each takes about a megabyte, and 10 ms or more to make."""
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that name other certificates than the SDK's."""
_making = Lock()


def share_tls(create: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """The context that `create` makes; another one once the environment names other certificates or they have changed.

    Any thread may call it. Nobody may change the context.
    """
    looks = tuple(_look_at(os.environ.get(name)) for name in _VARIABLES)
    # The lock keeps models that open at the same time from making one each.
    with _making:
        return _make(create, looks)


def _look_at(named: str | None) -> tuple[str, int] | None:
    """A file or folder and the time of its last change, so that a certificate that was renewed is read."""
    if not named:
        return None
    place = Path(named)
    try:
        newest = place.stat().st_mtime_ns
        if place.is_dir():
            with os.scandir(place) as entries:
                # A file in a folder may be rewritten without a change of the folder itself.
                newest = max(newest, max((each.stat().st_mtime_ns for each in entries), default=0))
    except OSError:
        return named, 0
    return named, newest


@lru_cache(MAX_CONTEXTS)
def _make(create: Callable[[], ssl.SSLContext], _certificates: object) -> ssl.SSLContext:
    return create()
