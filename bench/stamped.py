"""Stamped messages: what the broker's benchmarks send, and what their receivers make of what arrives.

A message is 120 bytes: stream, number, CLOCK_MONOTONIC in ns right before it was handed to the client, padding.
"""

import statistics
import struct
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

_HEAD = struct.Struct(">IIq")
_PADDING = b"." * (120 - _HEAD.size)
WARM_UP = 0xFFFFFFFF
"""Stream number of messages that only warm the road."""


def stamped(stream: int, number: int) -> bytes:
    """One message, stamped now."""
    return _HEAD.pack(stream, number, time.monotonic_ns()) + _PADDING


@dataclass
class Arrivals:
    """What came so far."""

    seen: dict[int, int] = field(default_factory=dict)
    late_ns: list[int] = field(default_factory=list)
    disorder: int = 0
    first_ns: int = 0
    last_ns: int = 0

    def add(self, body: bytes) -> bool:
        """Count one message; False where it was only for warming up."""
        now = time.monotonic_ns()
        stream, number, sent = _HEAD.unpack_from(body)
        if stream == WARM_UP:
            return False
        self.late_ns.append(now - sent)
        self.disorder += number < self.seen.get(stream, 0)
        self.seen[stream] = number + 1
        self.first_ns = self.first_ns or now
        self.last_ns = now
        return True


@dataclass(frozen=True)
class Figures:
    """One run. Latencies in ms from the stamp to the receiver's event loop."""

    sent: int
    lost: int
    disorder: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    rate: float
    """Messages a second, between the first and the last that came."""

    @classmethod
    def of(cls, arrivals: Arrivals, sent: int) -> "Figures":
        """Sum up a run."""
        late = [each / 1e6 for each in arrivals.late_ns]
        took = max(arrivals.last_ns - arrivals.first_ns, 1) / 1e9
        return cls(
            sent=sent,
            lost=sent - len(late),
            disorder=arrivals.disorder,
            p50_ms=percentile(late, 50),
            p99_ms=percentile(late, 99),
            max_ms=percentile(late, 100),
            rate=round(len(late) / took, 1),
        )

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return asdict(self)


def percentile(values: Iterable[float], percent: float) -> float:
    """Nearest-rank percentile, rounded to a microsecond; 0 for nothing."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))], 3)


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Of several runs, name by name."""
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}
