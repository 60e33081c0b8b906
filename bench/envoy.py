"""Chats through a real Envoy that asks `tg-pick`, beside Envoy alone; and a pool beside a plain provider, in one run.

    python -m bench.envoy                           medians of five, about 150 seconds
    python -m bench.envoy --rounds 2 --seconds 0.5  a look
    python -m bench.envoy --only pool

Eight clients ask without a pause, each on a connection that it keeps; a chat has about 3 KB, and three model servers
answer at once. One Envoy with one worker has a listener for each way, made of the shipped configurations: no picker,
one picker, two on one port, and two that decide nothing: `bench/fixed_picker.py`, the least that a picker on gRPC in
Python can cost, and `bench/bare_picker.py`, the least with no gRPC. What is not asked is idle. The ratios are medians
of those of each round.

The two pickers get a connection for each `--streams` requests at a time; the shipped 100 would be one connection.
The servers have no page of metrics, so that reading it costs the pickers nothing.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import uvloop

from bench.asking_client import ask
from bench.envoy_listeners import Listener, write_listeners
from bench.goal import Goal, goal_table
from bench.load_client import post
from bench.pipeline import Row, free_port, median
from bench.pool_overhead import PLAIN, POOL, Measure, ways_through_gateways
from bench.subject import Subject, wait_ready
from tests.picker.extproc.envoy_server import envoy_command

CLIENTS = 8
WARM_UP_SECONDS = 0.5
INSTRUCTIONS = "You are an assistant of a company that sells bicycles; be brief, be polite, and never make up a price. "
QUESTION = "What did I buy last year, and which of it can still be returned? "
ALONE, BUFFERED, DUPLEX = "Envoy alone", "buffered", "duplex"
UNREAD = "answers unread"
FIXED = {"fixed address": "bench.fixed_picker", "bare frames": "bench.bare_picker"}
"""Pickers that decide nothing, and their modules."""
BUFFERED_TWO, DUPLEX_TWO = "buffered, two pickers", "duplex, two pickers"
COUNTED = re.compile(r"^llm_d_epp_request_total\{[^}]*\} (\S+)$", re.MULTILINE)

ENVOY_GOALS = (
    Goal("buffered, p50 by Envoy's own", "p50", BUFFERED, (ALONE, "p50"), 3.0),
    Goal("answers unread, p50 by Envoy's own", "p50", UNREAD, (ALONE, "p50"), 3.0),
    Goal("duplex, p50 by Envoy's own", "p50", DUPLEX, (ALONE, "p50"), 6.0),
    Goal("buffered, requests of the busier of two pickers by all", "busier", BUFFERED_TWO, (BUFFERED_TWO, "all"), 0.8),
    Goal("duplex, requests of the busier of two pickers by all", "busier", DUPLEX_TWO, (DUPLEX_TWO, "all"), 0.8),
)
POOL_GOALS = (
    Goal("a pool's added p50 by a plain provider's, requests", "added", POOL, (PLAIN, "added"), 1.3),
    Goal("a pool's added p50 by a plain provider's, chunks", "chunk", POOL, (PLAIN, "chunk"), 1.3),
)
GOALS = {"envoy": ENVOY_GOALS, "pool": POOL_GOALS}
"""By part of the bench."""
COLUMNS = {
    "p50": "p50, ms",
    "p99": "p99, ms",
    "per_second": "requests/s",
    "cpu_ours": "our CPU, ms a request",
    "cpu_envoy": "Envoy's",
    "share": "share of the busier picker",
    "added": "added p50, ms",
    "chunk": "added p50 of a chunk, ms",
}
DIGITS = {"per_second": 0}


class Picker:
    """One `tg-pick` process."""

    def __init__(self, name: str, port: int, folder: Path, stack: ExitStack) -> None:
        command = [str(Path(sys.executable).parent / "tg-pick"), "--config", str(folder / "pick.toml")]
        command += ["--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0", "--log-level", "warning"]
        self.process = stack.enter_context(Subject(name, command, folder / f"{name}.log"))
        page = self.process.first_line().rpartition(" ")[2]
        self._metrics = page.replace("/instances", "/metrics")

    @property
    def requests(self) -> float:
        """How many it has been asked about."""
        with urllib.request.urlopen(self._metrics, timeout=10) as answer:
            return sum(map(float, COUNTED.findall(answer.read().decode())))


class FixedPicker:
    """A picker that decides nothing, in a process. It counts nothing either: `requests` is 0."""

    requests = 0.0

    def __init__(self, module: str, port: int, server: int, folder: Path, stack: ExitStack) -> None:
        addresses = [f"--listen=127.0.0.1:{port}", f"--server=127.0.0.1:{server}"]
        command = [sys.executable, "-m", module, *addresses]
        self.process = stack.enter_context(Subject(module, command, folder / f"{module}.log"))
        self.port = port
        self.process.first_line()


@dataclass(frozen=True)
class Way:
    """One listener of Envoy, and who picks."""

    listener: Listener
    envoy: Subject
    pickers: Sequence[Picker | FixedPicker]

    def measure(self, seconds: float) -> Row:
        """One turn."""
        port, processes = self.listener.port, [self.envoy, *(picker.process for picker in self.pickers)]
        picked = [picker.requests for picker in self.pickers]
        before = [process.cpu for process in processes]
        row: Row = uvloop.run(ask(port, chats(port), seconds))
        envoy, *ours = (process.cpu - had for process, had in zip(processes, before, strict=True))
        row["cpu_envoy"] = 1000 * envoy / row["requests"]
        if ours:
            row["cpu_ours"] = 1000 * sum(ours) / row["requests"]
        if len(ours) > 1:
            counts = [picker.requests - had for picker, had in zip(self.pickers, picked, strict=True)]
            row |= {"busier": max(counts), "all": sum(counts), "share": max(counts) / sum(counts)}
        return row


def chats(port: int, *, streamed: bool = False) -> list[bytes]:
    """A request for each client: the same instructions, and a conversation of its own."""
    requests = []
    for number in range(CLIENTS):
        turn = f"chunks=1 gap=0 I am customer {number}. " + QUESTION * 16
        messages = [{"role": "system", "content": INSTRUCTIONS * 20}, {"role": "user", "content": turn}]
        body = json.dumps({"model": "bench", "messages": messages, "stream": streamed}).encode()
        requests.append(post(f"127.0.0.1:{port}", "/v1/chat/completions", body))
    return requests


def ways_through_envoy(servers: Sequence[int], streams: int, folder: Path, stack: ExitStack) -> dict[str, Measure]:
    """What is to be measured, by its name."""
    endpoints = ", ".join(f'"127.0.0.1:{port}"' for port in servers)
    (folder / "pick.toml").write_text(f"endpoints = [{endpoints}]\n", "utf-8")
    one, two = free_port(), free_port()
    single = [Picker("single", one, folder, stack)]
    double = [Picker(f"double-{number}", two, folder, stack) for number in range(2)]
    fixed = {kind: FixedPicker(module, free_port(), servers[0], folder, stack) for kind, module in FIXED.items()}
    pickers: dict[str, Sequence[Picker | FixedPicker]] = {
        ALONE: [],
        **dict.fromkeys((BUFFERED, UNREAD, DUPLEX), single),
        **dict.fromkeys((BUFFERED_TWO, DUPLEX_TWO), double),
    }
    listeners = {
        ALONE: Listener("alone", free_port()),
        BUFFERED: Listener("buffered", free_port(), "buffered", one),
        UNREAD: Listener("unread", free_port(), "unread-answers", one),
        DUPLEX: Listener("duplex", free_port(), "duplex", one),
        BUFFERED_TWO: Listener("buffered-two", free_port(), "buffered", two, streams),
        DUPLEX_TWO: Listener("duplex-two", free_port(), "duplex", two, streams),
    }
    for kind, picker in fixed.items():
        for way in (BUFFERED, UNREAD, DUPLEX):
            name, like = f"{way}, {kind}", listeners[way]
            listeners[name] = Listener(
                name.replace(", ", "-").replace(" ", "-"), free_port(), like.shipped, picker.port
            )
            pickers[name] = [picker]
    admin = free_port()
    file = folder / "envoy.json"
    file.write_text(write_listeners(list(listeners.values()), servers, admin), "utf-8")
    envoy = stack.enter_context(Subject("envoy", envoy_command(file), folder / "envoy.log", quiet=True))
    wait_ready(f"http://127.0.0.1:{admin}")
    return {name: Way(listener, envoy, pickers[name]).measure for name, listener in listeners.items()}


def in_turns(rounds: int, seconds: float, ways: Mapping[str, Measure]) -> dict[str, list[Row]]:
    """The rows of each way, a round after the other; each way runs for a moment before it counts."""
    for measure in ways.values():
        measure(WARM_UP_SECONDS)
    found: dict[str, list[Row]] = {name: [] for name in ways}
    for number in range(rounds):
        print(f"  round {number + 1} of {rounds}", file=sys.stderr)
        for name, measure in ways.items():
            found[name].append(measure(seconds))
    return found


def ratio(rows: Mapping[str, list[Row]], field: str, row: str, by: tuple[str, str]) -> float:
    """Of one field to another: the median of the rounds."""
    pairs = zip(rows[row], rows[by[0]], strict=True)
    found: float = statistics.median(ours[field] / other[by[1]] for ours, other in pairs)
    return found


def table(rows: Mapping[str, list[Row]], goals: Sequence[Goal]) -> str:
    """As Markdown: medians, and the goals."""
    medians = {name: median(found) for name, found in rows.items()}
    fields = [field for field in COLUMNS if any(field in row for row in medians.values())]
    lines = ["| | " + " | ".join(COLUMNS[field] for field in fields) + " |", "|---" * (len(fields) + 1) + "|"]
    for name, row in medians.items():
        cells = [f"{row[field]:,.{DIGITS.get(field, 2)}f}" if field in row else "" for field in fields]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", *goal_table(goals, (ratio(rows, goal.field, goal.row, goal.by) for goal in goals))]
    for two, one in ((BUFFERED_TWO, BUFFERED), (DUPLEX_TWO, DUPLEX)):
        if two in rows:
            gain = ratio(rows, "per_second", two, (one, "per_second"))
            lines += ["", f"{one}: requests/s of two pickers by one: {gain:.2f}"]
    return "\n".join(lines)


def measure_parts(args: argparse.Namespace) -> Iterator[str]:
    """The tables, each as soon as it is there; the processes of one part run in its time alone."""
    for part, goals in GOALS.items():
        if args.only not in {None, part}:
            continue
        with tempfile.TemporaryDirectory(prefix="tokengrid-envoy-") as name, ExitStack() as stack:
            folder = Path(name)
            servers = [_model_server(number, folder, stack) for number in range(3)]
            if part == "envoy":
                ways = ways_through_envoy(servers, args.streams, folder, stack)
            else:
                ways = ways_through_gateways(servers, partial(chats, streamed=True), folder, stack)
            yield table(in_turns(args.rounds, args.seconds, ways), goals)


def _model_server(number: int, folder: Path, stack: ExitStack) -> int:
    command = [sys.executable, "bench/fake_provider.py", "--port=0"]
    return int(stack.enter_context(Subject(f"server-{number}", command, folder / f"server-{number}.log")).first_line())


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each turn")
    parser.add_argument("--streams", type=int, default=1, help="requests on one connection to one of two pickers")
    parser.add_argument("--only", choices=GOALS)
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    for text in measure_parts(args):
        print(text, end="\n\n", flush=True)


if __name__ == "__main__":
    main()
