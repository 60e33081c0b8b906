"""What the agent layer adds to each chunk: thoughts beside completions of one provider, in one process and one run.

    python -m bench.agent                   medians of five (about three minutes)
    python -m bench.agent --runs 1          a look

One `tg-serve` on the memory bus, with the openai provider before the fake one. A completion passes provider, bus and
gateway; a thought the agent and the bus once more. Both are measured from the fake's write to the client's read, for a
model that calls tools natively and for one that writes ReAct text. Goal: at most 1.5 x the completion's added latency.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.pipeline import CALM, ENVIRONMENT, MANY, ONE, Row, free_port, load, provider, repeated
from bench.subject import Subject, tokengrid, wait_ready

CONFIGURATION = """
[models.bench]
provider = "openai"
options = {{ base_url = "{provider}/v1", key_variable = "BENCH_KEY" }}

[flows.default]
text-completion = {{ model = "bench" }}
agent = {{ calling = "native" }}

[flows.text]
text-completion = {{ model = "bench" }}
agent = {{ calling = "text" }}

[tools.version]
kind = "python"
options = {{ function = "platform:python_version" }}
"""
DOORS = {"completion": "sse", "thought, native calls": "agent", "thought, ReAct text": "agent-text"}
FIELDS = ("first_p50", "added_p50", "added_p99", "steady_p50", "steady_p99", "cpu_tg-serve")


def measured(runs: int, folder: Path) -> dict[str, Row]:
    """Every shape of load at every door, in turn."""
    with ExitStack() as stack:
        fake = stack.enter_context(provider(folder))
        config, port = folder / "agent.toml", free_port()
        config.write_text(CONFIGURATION.format(provider=fake), "utf-8")
        url = f"http://127.0.0.1:{port}"
        command = tokengrid("--config", str(config), "--bus", "memory://", "--port", str(port))
        ours = stack.enter_context(Subject("tg-serve", command, folder / "serve.log", ENVIRONMENT))
        wait_ready(url)
        for door in DOORS.values():
            load(url, door, MANY, [ours])
        measures: dict[str, Callable[[], Row]] = {}
        for shape in (ONE, CALM, MANY):
            for name, door in DOORS.items():
                measures[f"{name}: {shape.name}"] = lambda shape=shape, door=door: load(url, door, shape, [ours])  # type: ignore[misc]
        return repeated(runs, measures)


def table(rows: dict[str, Row]) -> str:
    """Markdown: milliseconds, and each thought over the completion of the same load."""
    lines = ["| | " + " | ".join(FIELDS) + " | missing | over a completion: added p50, p99, steady p50, p99 | errors |"]
    lines.append("|---" * (len(FIELDS) + 4) + "|")
    for name, row in rows.items():
        kind, _, shape = name.partition(": ")
        base = rows[f"completion: {shape}"]
        ratios = ", ".join(f"{row[field] / base[field]:.2f}" for field in FIELDS[1:5]) if kind != "completion" else ""
        cells = " | ".join(f"{row[field]:.3f}" for field in FIELDS)
        lines.append(f"| {name} | {cells} | {row['missing']} | {ratios} | {'; '.join(row['errors'])[:60]} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as folder:
        rows = measured(args.runs, Path(folder))
    sys.stdout.write(f"{table(rows)}\n")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), "utf-8")


if __name__ == "__main__":
    main()
