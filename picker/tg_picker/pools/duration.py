"""A duration as Kubernetes writes it -> seconds."""

import re

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_DURATION = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in ("h", "m", "s", "ms")))
_PART = re.compile(r"([\d.]+)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def parse_duration(text: str) -> float | None:
    """Seconds, more than 0; None: it is no duration. Units stand from large to small, fractions in any: `1m30.5s`."""
    if not text.isascii() or not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)) or None
