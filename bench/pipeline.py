"""The whole road under load, beside its floors, in one run.

    python -m bench.pipeline                all of it, medians of five (about ten minutes)
    python -m bench.pipeline --runs 1       a look
    python -m bench.pipeline --only embedded

Over a real Pulsar: one gateway process, one processor process with the openai provider, the fake provider and the load
client in processes of their own; the floor is a bare sender and receiver over the same broker (`bench/floor.py`).
Embedded: one `tg-serve` process on the memory bus with the same provider; the floor is a bare parsing aiohttp proxy.
Prints a table, and one JSON object to `--json FILE`.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.subject import Subject, tokengrid, wait_ready
from tests.pulsar_server import PulsarServer

CONFIGURATION = """
[models.bench]
provider = "openai"
queue = 10000
options = {{ base_url = "{provider}/v1", key_variable = "BENCH_KEY" }}

[flows.default]
text-completion = {{ model = "bench" }}
"""
ENVIRONMENT = {"BENCH_KEY": "none-needed"}
RATIOS = ("first_p50", "added_p50", "added_p99", "steady_p50", "steady_p99", "chunks_per_second")
Row = dict[str, Any]


@dataclass(frozen=True)
class Load:
    """One shape of load."""

    name: str
    streams: int
    chunks: int
    gap: float
    rounds: int = 1

    @property
    def arguments(self) -> list[str]:
        """For the load client."""
        values = {"streams": self.streams, "chunks": self.chunks, "gap": self.gap, "rounds": self.rounds}
        return [f"--{name}={value:g}" for name, value in values.items()]


ONE = Load("1 stream", 1, 64, 10, rounds=5)
SOME = Load("16 streams", 16, 64, 10, rounds=3)
MANY = Load("64 streams", 64, 64, 10, rounds=3)
CALM = Load("64 streams, 30 ms apart", 64, 64, 30)
MOST = Load("256 streams", 256, 64, 10)
FLAT_OUT = Load("flat out", 32, 2000, 0)


def load(url: str, door: str, shape: Load, subjects: list[Subject]) -> Row:
    """Run the load client once; CPU of the subjects in seconds per 1,000 chunks."""
    before = {subject.name: subject.cpu for subject in subjects}
    command = [sys.executable, "bench/load_client.py", url, f"--door={door}", *shape.arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    row: Row = json.loads(done.stdout)
    chunks = max(row["chunks"], 1)
    for subject in subjects:
        row[f"cpu_{subject.name}"] = 1000 * (subject.cpu - before[subject.name]) / chunks
    return row


def median(rows: list[Row]) -> Row:
    """Field by field; faults are added up."""
    merged: Row = {}
    for key, value in rows[0].items():
        if key in {"missing", "repeated"}:
            merged[key] = sum(row[key] for row in rows)
        elif key == "errors":
            merged[key] = sorted({error for row in rows for error in row[key]})
        elif isinstance(value, int | float):
            merged[key] = statistics.median(row[key] for row in rows)
    return merged


def floor(server: PulsarServer, shape: Load) -> Row:
    """The bare broker under the same load."""
    command = [sys.executable, "-m", "bench.floor", f"--url={server.service_url}", f"--broker-pid={server.pid}"]
    command += [f"--streams={shape.streams}", f"--chunks={shape.chunks}", f"--gap={shape.gap:g}", "--runs=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: Row = json.loads(done.stdout)
    row = {"added_p50": found["p50_ms"], "added_p99": found["p99_ms"], "chunks_per_second": found["rate"]}
    row |= {"steady_p50": found["p50_ms"], "steady_p99": found["p99_ms"]}
    row |= {"first_p50": found["round_trip"]["p50_ms"], "first_p99": found["round_trip"]["p99_ms"]}
    row |= {key: value for key, value in found.items() if key.startswith("cpu_")}
    return row | {"missing": found["lost"], "repeated": 0, "errors": []}


def idle(subjects: list[Subject], seconds: float = 10.0) -> float:
    """Share of a core that the subjects use together while nobody asks anything, once they have settled."""
    time.sleep(3)
    before = sum(subject.cpu for subject in subjects)
    time.sleep(seconds)
    return (sum(subject.cpu for subject in subjects) - before) / seconds


def repeated(runs: int, measures: dict[str, Callable[[], Row]]) -> dict[str, Row]:
    """All measures in turn, so many times over; the median of each."""
    rows: dict[str, list[Row]] = {name: [] for name in measures}
    for number in range(runs):
        for name, measure in measures.items():
            print(f"  run {number + 1} of {runs}: {name}", file=sys.stderr)
            rows[name].append(measure())
    return {name: median(found) for name, found in rows.items()}


def ratios(rows: dict[str, Row]) -> dict[str, dict[str, float]]:
    """Every row over its floor: added latency and time to first token of ours by the floor's, chunks/s likewise."""
    found = {}
    for name, row in rows.items():
        kind, _, shape = name.partition(": ")
        base = rows.get(f"floor: {shape}") or rows.get(f"proxy: {shape}")
        if base is not None and kind not in {"floor", "proxy"}:
            found[name] = {field: round(row[field] / base[field], 2) for field in RATIOS}
    return found


@contextmanager
def provider(folder: Path) -> Iterator[str]:
    """The fake provider; its URL."""
    with Subject("provider", [sys.executable, "bench/fake_provider.py", "--port=0"], folder / "provider.log") as fake:
        yield f"http://127.0.0.1:{int(fake.first_line())}"


@contextmanager
def bare_proxy(fake: str, folder: Path) -> Iterator[tuple[str, Subject]]:
    """The bare parsing proxy: its URL and its process."""
    with Subject("proxy", [sys.executable, "bench/bare_proxy.py", fake], folder / "proxy.log") as subject:
        yield f"http://127.0.0.1:{json.loads(subject.first_line())['port']}", subject


def over_pulsar(runs: int, folder: Path) -> Row:
    """Gateway and processor in two processes over a real broker, against the bare broker."""
    with ExitStack() as stack:
        server = stack.enter_context(PulsarServer())
        fake = stack.enter_context(provider(folder))
        url, common = started(folder, fake, server.service_url)
        gateway, processor = (
            stack.enter_context(Subject(name, tokengrid("--only", name, *common), folder / f"{name}.log", ENVIRONMENT))
            for name in ("gateway", "text-completion")
        )
        subjects = [gateway, processor]
        wait_ready(url)
        resting = idle(subjects)
        doors = [(shape, door) for shape in (ONE, CALM, MANY, MOST, FLAT_OUT) for door in ("sse", "websocket")]
        load(url, "sse", MANY, subjects)
        measures: dict[str, Callable[[], Row]] = {}
        for shape in (ONE, CALM, MANY, FLAT_OUT):
            measures[f"floor: {shape.name}"] = lambda shape=shape: floor(server, shape)  # type: ignore[misc]
        for shape, door in doors:
            measures[f"{door}: {shape.name}"] = lambda shape=shape, door=door: load(url, door, shape, subjects)  # type: ignore[misc]
        rows = repeated(runs, measures)
        resident = {subject.name: round(subject.resident, 1) for subject in subjects}
        return {"rows": rows, "ratios": ratios(rows), "idle_cores": resting, "resident_mib": resident}


def started(folder: Path, fake: str, bus: str, configuration: str = CONFIGURATION) -> tuple[str, list[str]]:
    """The URL of the gateway to be, and the arguments that all processes share."""
    config = folder / "bench.toml"
    config.write_text(configuration.format(provider=fake), "utf-8")
    port = free_port()
    return f"http://127.0.0.1:{port}", ["--config", str(config), "--bus", bus, "--port", str(port)]


def embedded(runs: int, folder: Path) -> Row:
    """Everything in one process, against a bare proxy."""
    with ExitStack() as stack:
        fake = stack.enter_context(provider(folder))
        url, common = started(folder, fake, "memory://")
        ours = stack.enter_context(Subject("tg-serve", tokengrid(*common), folder / "serve.log", ENVIRONMENT))
        proxy, bare = stack.enter_context(bare_proxy(fake, folder))
        wait_ready(url)
        resting = idle([ours])
        load(url, "sse", MANY, [ours])
        load(proxy, "openai", MANY, [bare])
        measures: dict[str, Callable[[], Row]] = {}
        for shape in (ONE, CALM, MANY, MOST, FLAT_OUT):
            measures[f"proxy: {shape.name}"] = lambda shape=shape: load(proxy, "openai", shape, [bare])  # type: ignore[misc]
            for door in ("sse", "websocket"):
                measures[f"{door}: {shape.name}"] = lambda shape=shape, door=door: load(url, door, shape, [ours])  # type: ignore[misc]
        rows = repeated(runs, measures)
        resident = {"tg-serve": round(ours.resident, 1)}
        return {"rows": rows, "ratios": ratios(rows), "idle_cores": resting, "resident_mib": resident}


def table(result: Row) -> str:
    """The rows as Markdown: milliseconds, chunks a second, seconds of CPU of our processes (the broker's apart)."""
    latencies = ("first_p50", "first_p99", "added_p50", "added_p99", "steady_p50", "steady_p99")
    fields = (*latencies, "chunks_per_second", "missing", "repeated")
    lines = ["| | " + " | ".join(fields) + " | cpu s / 1,000 | errors |", "|---" * (len(fields) + 3) + "|"]
    for name, row in result["rows"].items():
        cpu = sum(value for key, value in row.items() if key.startswith("cpu_") and not key.endswith("broker"))
        cells = [f"{row[field]:,.2f}" if field in latencies else f"{row[field]:,.0f}" for field in fields]
        lines.append(f"| {name} | {' | '.join(cells)} | {cpu:.3f} | {'; '.join(row['errors'])[:60]} |")
    lines += ["", "| over its floor | " + " | ".join(RATIOS) + " |", "|---" * (len(RATIOS) + 1) + "|"]
    lines += [
        f"| {name} | " + " | ".join(f"{ratio[field]:.2f}" for field in RATIOS) + " |"
        for name, ratio in result["ratios"].items()
    ]
    lines.append(f"\nidle: {100 * result['idle_cores']:.1f} % of a core; resident MiB: {result['resident_mib']}")
    return "\n".join(lines)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


SCENES = {"pulsar": over_pulsar, "embedded": embedded}


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=SCENES)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results: Row = {"machine": {"cores": os.cpu_count(), "python": platform.python_version()}}
    with tempfile.TemporaryDirectory(prefix="tokengrid-bench-") as folder:
        for name, scene in SCENES.items():
            if args.only in {None, name}:
                results[name] = scene(args.runs, Path(folder))
                print(f"\n## {name}\n\n{table(results[name])}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), "utf-8")


if __name__ == "__main__":
    main()
