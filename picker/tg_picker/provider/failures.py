"""Servers' failures and the scheduler's refusals -> the client's error, and whether another server is tried."""

from typing import Final

import structlog

from tg_picker.core import Pick, Rejection
from tg_picker.provider.order import MAX_LOGGED, Order
from tg_schema import TgError
from tg_schema.errors import NotFound, ProtocolError, RateLimited, Unavailable

log = structlog.get_logger()

_REFUSALS: Final[dict[int, tuple[type[TgError], str]]] = {
    404: (NotFound, "no server of the pool has the model"),
    429: (RateLimited, "all servers of the pool are busy; ask again later"),
    503: (Unavailable, "the pool has no server; its operator must check the configured servers and their log"),
}


def choose_failure(before: TgError | None, error: TgError, pick: Pick | None, *, model: str, provider: str) -> TgError:
    """The error for the client if no other server answers.

    Args:
        before: the error to report of the servers that were tried before.
        error: the error of the last server.
        pick: the pick of that server; None = a part of its answer was sent to the client.
        model: the model's name in the configuration, for the log.
        provider: the provider's name, for the log.

    Raises:
        TgError: `error` itself, if all other servers would fail too, as for a wrong request, or if output was sent.
    """
    if pick is None or not (error.retryable or isinstance(error, NotFound | ProtocolError)):
        raise error
    server = pick.endpoint
    about = {"model": model, "provider": provider, "server": server.name, "address": server.address}
    log.warning("pool.failover", **about, error=error.type, **error.details)
    # Prefer the error of a server that may have the model to another server's 404.
    return before if before and isinstance(error, NotFound) else error


def describe_missing(failed: TgError, order: Order) -> TgError:
    """The final error after the last attempt. After a 404, it does not blame the model's own options."""
    if not isinstance(failed, NotFound):
        return failed
    what = "model" if order.destination.adapter is None else "adapter"
    name = order.destination.model[:MAX_LOGGED]
    if order.unreachable:
        return Unavailable(f"no server of the pool that can be reached has the {what} {name!r}; ask again later")
    asked = f"no server of the pool {order.destination.pool} that was asked"
    return NotFound(f"{asked} has the {what} {name!r}; load it there, or ask another")


def refuse(rejection: Rejection) -> TgError:
    """The error for a request that the scheduler rejected."""
    kind, sentence = _REFUSALS[rejection.status]
    return kind(f"{sentence} ({rejection.reason})", retry_after=rejection.retry_after)
