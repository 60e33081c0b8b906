"""Provider's client -> its connections, and the certificates that all models of a process share.

Only `open_pool` imports httptools, which `tokengrid-base[http]` installs.
"""

import os
import ssl
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool


MAX_CONTEXTS = 16
"""Contexts that are kept; each takes about a megabyte, and 10 ms or more to make."""
_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Environment variables that name other certificates than the SDK's."""
_making = Lock()


def open_pool(tls: ssl.SSLContext | Literal[True] = True, *, proxied: bool = True) -> "HttpPool":
    """A pool of connections to one provider, to be used and closed on one loop. It connects at the first request.

    The first call imports httptools and may read the system's certificates, which takes a while: call it in a thread.

    Args:
        tls: the trusted certificates; True = the system's.
        proxied: whether the proxies that the environment names are used.
    """
    module = import_module("tg_base.llm.http.pool")
    trusted = share_tls(ssl.create_default_context) if tls is True else tls
    return cast("HttpPool", module.HttpPool(trusted, proxied=proxied))


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
