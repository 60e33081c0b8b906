"""One processor and several over Pulsar, beside the bare broker and a bare proxy, in one run: what a chunk costs.

    python -m bench.processors                      four processors, medians of three
    python -m bench.processors --count 2 --runs 1   a look
    python -m bench.processors --door websocket

The same load, 64 streams, goes in turn to a pipeline with one processor, to one with several, to the bare parsing
proxy, to several of these that share the streams, and to the bare sender and receiver of `bench.floor`; what is not
asked is idle. Each pipeline has a broker and a gateway of its own. Prints a table of the figures, and one of the goals.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.child import cpu_of
from bench.compare import Pipeline
from bench.goal import Goal, goal_table
from bench.pipeline import MANY, Row, bare_proxy, floor, load, median, provider, repeated
from bench.subject import Subject, wait_ready
from tests.pulsar_server import PulsarServer

FIELDS = ("first_p50", "first_p99", "added_p50", "added_p99", "steady_p50", "steady_p99")
FLOOR, PROXY, PROXIES, ONE, SEVERAL = "bare broker", "bare proxy", "bare proxies", "1 processor", "processors"


GOALS = (
    Goal("added p50 by the bare broker's", "added_p50", ONE, (FLOOR, "added_p50"), 2.0),
    Goal("added p99 by the bare broker's", "added_p99", ONE, (FLOOR, "added_p99"), 2.5),
    Goal("first token p99 by its p50", "first_p99", ONE, (ONE, "first_p50"), 3.0),
    Goal("CPU of a chunk by the bare proxy's", "cpu", ONE, (PROXY, "cpu"), 2.0),
    Goal("CPU of a chunk, several processors by one", "cpu", SEVERAL, (ONE, "cpu"), 1.15),
    Goal("the same of bare proxies", "cpu", PROXIES, (PROXY, "cpu"), 1.15),
)


def measure_all(runs: int, count: int, door: str) -> dict[str, Row]:
    """The rows: medians of `runs` runs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-processors-")))
        fake = stack.enter_context(provider(folder))
        url, proxy = stack.enter_context(bare_proxy(fake, folder))
        measures: dict[str, Callable[[], Row]] = {PROXY: lambda: with_cpu(load(url, "openai", MANY, [proxy]))}
        proxies = [stack.enter_context(bare_proxy(fake, folder)) for _ in range(count)]
        measures[PROXIES] = lambda: share_load(proxies)
        for name, processors in ((ONE, 1), (SEVERAL, count)):
            server = stack.enter_context(PulsarServer())
            checkout = Path(sys.executable).parents[1].parent
            pipeline = Pipeline(stack, checkout, folder / name, fake, server.service_url, processors=processors)
            wait_ready(pipeline.url)
            pipeline.measure(MANY, door)
            measures[name] = partial(beside_broker, pipeline, server, door)
        measures[FLOOR] = lambda: with_cpu(floor(server, MANY))
        return repeated(runs, measures)


def share_load(proxies: Sequence[tuple[str, Subject]]) -> Row:
    """The load, a part of its streams for each proxy; what a process costs for the wake-ups that it does not share."""
    part = replace(MANY, streams=MANY.streams // len(proxies))
    with ThreadPoolExecutor(len(proxies)) as clients:
        return with_cpu(median([*clients.map(lambda one: load(one[0], "openai", part, [one[1]]), proxies)]))


def beside_broker(pipeline: Pipeline, server: PulsarServer, door: str) -> Row:
    """One load of a pipeline, with the broker's CPU."""
    before = cpu_of(server.pid) or 0.0
    row = pipeline.measure(MANY, door)
    return row | {"cpu_broker": 1000 * ((cpu_of(server.pid) or 0.0) - before) / max(row["chunks"], 1)}


def with_cpu(row: Row) -> Row:
    """Seconds of CPU of 1,000 chunks, the broker's apart."""
    used = [value for key, value in row.items() if key.startswith("cpu_") and not key.endswith("broker")]
    return row | {"cpu": sum(used)}


def table(rows: dict[str, Row]) -> str:
    """As Markdown: milliseconds, seconds of CPU of 1,000 chunks, and the goals."""
    lines = ["| | " + " | ".join(FIELDS) + " | missing | repeated | cpu s / 1,000 | of the broker |", "|---" * 11 + "|"]
    for name, row in rows.items():
        cells = [f"{row[field]:,.2f}" for field in FIELDS] + [f"{row['missing']:,.0f}", f"{row['repeated']:,.0f}"]
        cells += [f"{row['cpu']:.4f}", f"{broker:.4f}" if (broker := row.get("cpu_broker")) else ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    ratios = (rows[goal.row][goal.field] / rows[goal.by[0]][goal.by[1]] for goal in GOALS)
    lines += ["", *goal_table(GOALS, ratios)]
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--count", type=int, default=4, help="processors of the second pipeline")
    parser.add_argument("--door", choices=("sse", "websocket"), default="sse")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print(table(measure_all(args.runs, args.count, args.door)))


if __name__ == "__main__":
    main()
