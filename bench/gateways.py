"""What several gateways cost one processor, beside one gateway, over Pulsar, by turns.

    python -m bench.gateways                     12 gateways, medians of three (about four minutes)
    python -m bench.gateways --count 4 --runs 1  a look

Two processors, each with a broker of its own: one has one gateway, the other several. Both rest; then 60 streams are
asked of one gateway, beside which the others are idle; then as many are asked of all gateways, the same number of each.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.pipeline import ENVIRONMENT, Load, Row, load, provider, repeated, started
from bench.subject import Subject, tokengrid, wait_ready
from tests.pulsar_server import PulsarServer

STREAMS = 60
SHAPE = Load("60 streams", STREAMS, 64, 10, rounds=3)
REST_SECONDS = 10.0


class Gateways:
    """A processor, its gateways and its broker."""

    def __init__(self, count: int, fake: str, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        server = stack.enter_context(PulsarServer())
        self._urls: list[str] = []
        for number in range(count):
            (place := folder / str(number)).mkdir()
            url, common = started(place, fake, server.service_url)
            line = tokengrid("--only", "gateway", *common)
            stack.enter_context(Subject(f"gateway_{number}", line, place / "gateway.log", ENVIRONMENT))
            self._urls.append(url)
        line = tokengrid("--only", "text-completion", *common)
        self._processor = stack.enter_context(Subject("processor", line, folder / "processor.log", ENVIRONMENT))
        for url in self._urls:
            wait_ready(url)
        self.ask(self._urls)

    def rest(self) -> Row:
        """Nobody asks: milliseconds of CPU a second."""
        before = self._processor.cpu
        time.sleep(REST_SECONDS)
        return {"cpu": 1000 * (self._processor.cpu - before) / REST_SECONDS}

    def ask_one(self) -> Row:
        """The others are idle."""
        return self.ask(self._urls[:1])

    def ask_all(self) -> Row:
        """Each has its part of the streams."""
        return self.ask(self._urls)

    def ask(self, urls: Sequence[str]) -> Row:
        """Microseconds of CPU a chunk, and what a chunk waits, of the median gateway."""
        shape, before = replace(SHAPE, streams=STREAMS // len(urls)), self._processor.cpu
        with ThreadPoolExecutor(len(urls)) as pool:
            rows = list(pool.map(lambda url: load(url, "sse", shape, []), urls))
        chunks = sum(row["chunks"] for row in rows)
        waits = sorted(row["added_p50"] for row in rows)
        faults = sum(row["missing"] + row["repeated"] + len(row["errors"]) for row in rows)
        used = 1e6 * (self._processor.cpu - before) / chunks
        return {"cpu": used, "added_p50": waits[len(waits) // 2], "faults": faults}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-gateways-") as name, ExitStack() as stack:
        fake = stack.enter_context(provider(Path(name)))
        one, several = (Gateways(count, fake, Path(name) / str(count), stack) for count in (1, args.count))
        ways = {"rest": (one.rest, several.rest), "one asked": (one.ask_one, several.ask_one)}
        ways["all asked"] = (one.ask_one, several.ask_all)
        measures = {f"{way}, {who}": run for way, both in ways.items() for who, run in zip("1n", both, strict=True)}
        rows = repeated(args.runs, measures)
    print(f"| the processor | by 1 gateway | by {args.count} | ratio | added p50, ms | faults |")
    print("|---" * 6 + "|")
    for way in ways:
        few, many = rows[f"{way}, 1"], rows[f"{way}, n"]
        waits = f"{few['added_p50']:.2f}, {many['added_p50']:.2f}" if "added_p50" in few else ""
        cells = f"{few['cpu']:.1f} | {many['cpu']:.1f} | {many['cpu'] / few['cpu']:.2f} | {waits}"
        print(f"| {way} | {cells} | {few.get('faults', 0) + many.get('faults', 0):.0f} |")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
