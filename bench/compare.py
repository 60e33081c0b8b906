"""Two checkouts under the same load, in turn, in one run: what a change costs.

    python -m bench.compare ../before . --runs 7
    python -m bench.compare ../before . --bus pulsar --processors 4 --only "64 streams"

Both pipelines run at the same time and are idle while the other one works, so that what else the machine does
disturbs both alike. Each checkout needs its own `.venv`. Prints medians of each and the median of the paired ratios.
"""

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.pipeline import CALM, ENVIRONMENT, FLAT_OUT, MANY, MOST, ONE, SOME, Load, Row, load, provider, started
from bench.subject import Subject, wait_ready
from tests.pulsar_server import PulsarServer

SHAPES = (ONE, SOME, CALM, MANY, MOST, FLAT_OUT)
FIELDS = ("first_p50", "first_p99", "added_p50", "added_p99", "chunks_per_second")


class Pipeline:
    """One checkout's processes: everything in one, or a gateway and some processors on a bus that they share."""

    def __init__(
        self, stack: ExitStack, checkout: Path, folder: Path, fake: str, bus: str, *, processors: int = 1
    ) -> None:
        folder.mkdir()
        self.url, common = started(folder, fake, bus)
        command = [str(checkout / ".venv/bin/tg-serve"), *common]
        parts = {"all": command}
        if not bus.startswith("memory"):
            parts = {"gateway": [*command, "--only", "gateway"]}
            for number in range(processors):
                parts[f"processor_{number}"] = [*command, "--only", "text-completion"]
        self.subjects = [
            stack.enter_context(Subject(part, line, folder / f"{part}.log", ENVIRONMENT))
            for part, line in parts.items()
        ]

    def measure(self, shape: Load, door: str) -> Row:
        """One load; `cpu` = seconds per 1,000 chunks."""
        row = load(self.url, door, shape, self.subjects)
        row["cpu"] = sum(value for key, value in row.items() if key.startswith("cpu_"))
        return row


def compare(checkouts: list[Path], bus: str, runs: int, processors: int, shapes: tuple[Load, ...]) -> None:
    """Measure and print."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-compare-")))
        fake = stack.enter_context(provider(folder))
        buses = [bus, bus]
        if bus == "pulsar":
            # A broker for each: their flows have the same names.
            buses = [stack.enter_context(PulsarServer()).service_url for _ in checkouts]
        pipelines = [
            Pipeline(stack, checkout, folder / name, fake, url, processors=processors)
            for checkout, name, url in zip(checkouts, ("before", "after"), buses, strict=True)
        ]
        for pipeline in pipelines:
            wait_ready(pipeline.url)
            pipeline.measure(MANY, "sse")
        for shape in shapes:
            for door in ("sse", "websocket"):
                rows: list[list[Row]] = [[], []]
                for run in range(runs):
                    for index in (0, 1) if run % 2 else (1, 0):
                        rows[index].append(pipelines[index].measure(shape, door))
                print(f"{door}: {shape.name}: {told(*rows)}", flush=True)


def told(before: list[Row], after: list[Row]) -> str:
    """One line: field before > after (median of the paired ratios)."""
    cells = []
    for field in (*FIELDS, "cpu"):
        ratio = statistics.median(new[field] / old[field] for old, new in zip(before, after, strict=True))
        old, new = (statistics.median(row[field] for row in rows) for rows in (before, after))
        cells.append(f"{field} {old:.4g} > {new:.4g} ({ratio:.2f})")
    faults = sum(row["missing"] + row["repeated"] + len(row["errors"]) for row in (*before, *after))
    return ", ".join(cells) + (f", FAULTS {faults}" if faults else "")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout with a .venv")
    parser.add_argument("after", type=Path, help="another one")
    parser.add_argument("--bus", choices=("memory", "pulsar"), default="memory")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--processors", type=int, default=1, help="of each checkout, over Pulsar")
    parser.add_argument("--only", action="append", choices=[shape.name for shape in SHAPES], help="this load alone")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    checkouts = [args.before.absolute(), args.after.absolute()]
    shapes = tuple(shape for shape in SHAPES if not args.only or shape.name in args.only)
    compare(checkouts, "memory://" if args.bus == "memory" else "pulsar", args.runs, args.processors, shapes)


if __name__ == "__main__":
    main()
