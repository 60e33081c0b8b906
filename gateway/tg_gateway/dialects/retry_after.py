"""Error -> when to come back, as HTTP's header `Retry-After` says it (RFC 9110, section 10.2.3)."""

import math


def format_retry_after(seconds: float) -> str:
    """Whole seconds, at least one: 0 would invite a client to ask without a pause."""
    return str(max(1, math.ceil(seconds)))
