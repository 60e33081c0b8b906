"""Provider's client -> its connections: the one place that imports aiohttp, which `tokengrid-base[http]` brings."""

import ssl
from importlib import import_module
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool


def open_pool(tls: ssl.SSLContext | Literal[True] = True) -> "HttpPool":
    """Connections to one provider, asked and closed on one loop. No connection is made before the first question.

    The first call imports aiohttp, which takes a while: make clients in a thread.

    Args:
        tls: which certificates are trusted; True = those of the system.
    """
    module = import_module("tg_base.llm.http.pool")
    return cast("HttpPool", module.HttpPool(tls))
