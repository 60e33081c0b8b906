"""Token, key, address -> may it, and how much: authentication, rate limits, permissions."""

from tg_gateway.access.auth import Authenticator, Principal, bearer
from tg_gateway.access.limits import Limits
from tg_gateway.access.rate_limits import RateLimits
from tg_gateway.access.unauthenticated_limit import UnauthenticatedLimit
from tg_gateway.access.usage import Usage

__all__ = [
    "Authenticator",
    "Limits",
    "Principal",
    "RateLimits",
    "UnauthenticatedLimit",
    "Usage",
    "bearer",
]
