"""Token, key, address -> what a request may do, and how much: authentication, permissions, rate limits."""

from tg_gateway.access.auth import ANYBODY, Authenticator, Principal, find_callers, find_token
from tg_gateway.access.large_bodies import LargeBodies
from tg_gateway.access.limits import Limits
from tg_gateway.access.origins import ALLOW_ORIGIN, Origins, preflight_headers
from tg_gateway.access.payers import Payers
from tg_gateway.access.rate_limits import RateLimits, Spending
from tg_gateway.access.unauthenticated_limit import UnauthenticatedLimit
from tg_gateway.access.usage import Usage

__all__ = [
    "ALLOW_ORIGIN",
    "ANYBODY",
    "Authenticator",
    "LargeBodies",
    "Limits",
    "Origins",
    "Payers",
    "Principal",
    "RateLimits",
    "Spending",
    "UnauthenticatedLimit",
    "Usage",
    "find_callers",
    "find_token",
    "preflight_headers",
]
