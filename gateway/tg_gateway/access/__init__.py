"""Token, key, address -> may it, and how much: authentication, rate limits, permissions."""

from tg_gateway.access.auth import Authenticator, Principal, find_token
from tg_gateway.access.limits import Limits
from tg_gateway.access.rate_limits import RateLimits
from tg_gateway.access.unauthenticated_limit import CONNECTION_REFUSED, UnauthenticatedLimit
from tg_gateway.access.usage import Usage

__all__ = [
    "CONNECTION_REFUSED",
    "Authenticator",
    "Limits",
    "Principal",
    "RateLimits",
    "UnauthenticatedLimit",
    "Usage",
    "find_token",
]
