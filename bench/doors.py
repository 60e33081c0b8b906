"""Every protocol's door of one process beside the native one and a bare parsing proxy, under the same load in turn.

    python -m bench.doors                   medians of three (about twelve minutes)
    python -m bench.doors --doors openai

Embedded: one `tg-serve` on the memory bus before the fake provider. Prints milliseconds and CPU of each door, and its
ratio to the native door: added latency and CPU should be at most 1.3, chunks/s at least 0.7.
"""

import argparse
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.pipeline import ENVIRONMENT, FLAT_OUT, MANY, ONE, Row, bare_proxy, load, provider, repeated, started
from bench.subject import Subject, tokengrid, wait_ready

DOORS = ("openai", "completions", "responses", "anthropic", "lmtp", "tgi", "lmi", "mlc", "ollama")
FIELDS = ("first_p50", "added_p50", "added_p99", "chunks_per_second", "cpu")
SHAPES = (ONE, MANY, FLAT_OUT)


def measure(doors: tuple[str, ...], runs: int, folder: Path) -> dict[str, Row]:
    """Rows by "DOOR: SHAPE"; `cpu` is seconds for 1,000 chunks."""
    with ExitStack() as stack:
        fake = stack.enter_context(provider(folder))
        url, common = started(folder, fake, "memory://")
        ours = stack.enter_context(Subject("tg-serve", tokengrid(*common), folder / "serve.log", ENVIRONMENT))
        proxy, bare = stack.enter_context(bare_proxy(fake, folder))
        wait_ready(url)
        targets = [("proxy", proxy, "openai", bare), *((door, url, door, ours) for door in ("sse", *doors))]
        for _, target, door, subject in targets:
            load(target, door, MANY, [subject])
        measures: dict[str, Callable[[], Row]] = {}
        for shape in SHAPES:
            for name, target, door, subject in targets:
                measures[f"{name}: {shape.name}"] = lambda target=target, door=door, shape=shape, subject=subject: load(  # type: ignore[misc]
                    target, door, shape, [subject]
                )
        rows = repeated(runs, measures)
    for row in rows.values():
        row["cpu"] = sum(value for field, value in row.items() if field.startswith("cpu_"))
    return rows


def table(rows: dict[str, Row]) -> str:
    """As Markdown; behind each figure its ratio to the native door's."""
    lines = ["| | " + " | ".join(FIELDS) + " | missing | errors |", "|---" * (len(FIELDS) + 3) + "|"]
    for name, row in rows.items():
        native = rows["sse: " + name.partition(": ")[2]]
        cells = [f"{row[field]:.4g} ({row[field] / native[field]:.2f})" for field in FIELDS]
        lines.append(f"| {name} | {' | '.join(cells)} | {row['missing']} | {'; '.join(row['errors'])[:60]} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--doors", nargs="+", choices=DOORS, default=DOORS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as folder:
        print(table(measure(tuple(args.doors), args.runs, Path(folder))))


if __name__ == "__main__":
    main()
