"""The header `grpc-timeout` -> seconds."""

import re

_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}


def read_timeout(value: bytes | None) -> float | None:
    """Seconds that the caller waits at most; None = it does not say so, or not as gRPC has it."""
    found = _TIMEOUT.fullmatch(value) if value is not None else None
    return int(found[1]) * _SECONDS[found[2]] if found else None
