"""Gateways on one port over a real Pulsar: 1 and 2 workers under the same loads, by turns in one run.

    python -m bench.workers                 medians of three
    python -m bench.workers --runs 1        a look

One processor, the fake provider and the load client are processes of their own. Latencies of a first token are from
the connection's completion by the system, so those of `sse` have the wait to be accepted in them; a WebSocket's clock
starts after its handshake.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.child import cpu_of
from bench.pipeline import ENVIRONMENT, MANY, MOST, Load, Row, load, provider, repeated, started
from bench.subject import Subject, tokengrid, wait_ready
from tests.pulsar_server import PulsarServer

COUNTS = (1, 2)
FIELDS = ("first_p50", "first_p99", "added_p50", "added_p99", "chunks_per_second")
CPUS = ("gateway", "parent", "text-completion")


class Gateways:
    """One `tg-serve --only gateway --workers N`, with the CPU of its workers told apart."""

    def __init__(self, stack: ExitStack, count: int, folder: Path, fake: str, bus: str) -> None:
        folder.mkdir()
        self.url, self.common = started(folder, fake, bus)
        log = folder / "gateway.log"
        command = tokengrid("--only", "gateway", "--workers", str(count), "--log-format", "json", *self.common)
        self._parent = stack.enter_context(Subject("parent", command, log, ENVIRONMENT))
        self._parent.first_line()
        lines = map(json.loads, log.read_text("utf-8").splitlines())
        self._pids = next(line["pids"] for line in lines if line["event"] == "workers.serving")

    def measure(self, shape: Load, processor: Subject) -> Row:
        """One load; CPU in seconds for 1,000 chunks, `spread` = the busiest worker's share of the workers' CPU."""
        before = [cpu_of(pid) or 0.0 for pid in self._pids]
        row = load(self.url, "sse", shape, [self._parent, processor])
        used = [(cpu_of(pid) or 0.0) - earlier for pid, earlier in zip(self._pids, before, strict=True)]
        row["cpu_gateway"] = 1000 * sum(used) / max(row["chunks"], 1)
        row["spread"] = max(used) / (sum(used) or 1.0)
        return row


def measure(runs: int, folder: Path, stack: ExitStack) -> dict[str, Row]:
    """Rows by "N workers: SHAPE"."""
    server = stack.enter_context(PulsarServer())
    fake = stack.enter_context(provider(folder))
    gateways = {count: Gateways(stack, count, folder / str(count), fake, server.service_url) for count in COUNTS}
    command = tokengrid("--only", "text-completion", *gateways[1].common)
    processor = stack.enter_context(Subject("text-completion", command, folder / "processor.log", ENVIRONMENT))
    measures: dict[str, Callable[[], Row]] = {}
    for gateway in gateways.values():
        wait_ready(gateway.url)
        gateway.measure(MANY, processor)
    for shape in (MANY, MOST):
        for count, gateway in gateways.items():
            measures[f"{count} workers: {shape.name}"] = lambda gateway=gateway, shape=shape: gateway.measure(  # type: ignore[misc]
                shape, processor
            )
    # What warming up has left is done.
    time.sleep(1)
    return repeated(runs, measures)


def table(rows: dict[str, Row]) -> str:
    """As Markdown."""
    names = [*FIELDS, *(f"cpu_{name}" for name in CPUS), "spread"]
    lines = ["| | " + " | ".join(names) + " | missing | errors |", "|---" * (len(names) + 3) + "|"]
    for name, row in rows.items():
        cells = [f"{row[field]:.3g}" if row[field] < 1000 else f"{row[field]:,.0f}" for field in names]
        lines.append(f"| {name} | {' | '.join(cells)} | {row['missing']} | {'; '.join(row['errors'])[:60]} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-workers-") as folder, ExitStack() as stack:
        rows = measure(args.runs, Path(folder), stack)
    print(table(rows))


if __name__ == "__main__":
    main()
