"""Provider's client -> its connections: the only import of httptools, which `tokengrid-base[http]` installs."""

import ssl
from importlib import import_module
from typing import TYPE_CHECKING, Literal, cast

from tg_base.llm.http.shared_tls import share_tls

if TYPE_CHECKING:
    from tg_base.llm.http.pool import HttpPool


def open_pool(tls: ssl.SSLContext | Literal[True] = True, *, proxied: bool = True) -> "HttpPool":
    """A pool of connections to one provider, to be used and closed on one loop. It connects at the first request.

    The first call imports httptools and may read the system's certificates, which takes a while: call it in a thread.

    Args:
        tls: the trusted certificates; True = those of the system.
        proxied: whether the proxies that the environment names are used.
    """
    module = import_module("tg_base.llm.http.pool")
    trusted = share_tls(ssl.create_default_context) if tls is True else tls
    return cast("HttpPool", module.HttpPool(trusted, proxied=proxied))
