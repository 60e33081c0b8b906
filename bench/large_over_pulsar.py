"""One chat of 10 MB at a time over Pulsar: seconds to the first byte of its answer, and CPU of each process.

    python -m bench.large_over_pulsar               medians of ten for each kind of body, after one that starts workers

Gateway and processor are processes of their own. Theirs includes that of the worker processes that parse for them.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path

from bench.child import Child, cpu_of
from bench.compare import Pipeline
from bench.large_bodies import KINDS, PATHS, body
from bench.subject import wait_ready
from tests.pulsar_server import PulsarServer


def time_first_byte(url: str, sent: bytes) -> float:
    """Seconds from the request's first byte to the answer's."""
    connection = HTTPConnection(url.removeprefix("http://"))
    began = time.perf_counter()
    connection.request("POST", PATHS["chat"], sent, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read(1)
    seconds = time.perf_counter() - began
    answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}")
    return seconds


def cpu_with_workers(pid: int) -> float:
    """Seconds of CPU of a process and of the processes that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_of(each) or 0.0 for each in (pid, *map(int, children)))


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["one text", "an image", "2,000 messages"])
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-large-")))
        fake = stack.enter_context(Child("bench.large_bodies", "server", "openai"))
        broker = stack.enter_context(PulsarServer())
        checkout = Path(sys.executable).parents[1].parent
        url = f"http://127.0.0.1:{fake.hear()}"
        pipeline = Pipeline(stack, checkout, folder / "pipeline", url, broker.service_url)
        wait_ready(pipeline.url)
        pids = [broker.pid, *(subject.pid for subject in pipeline.subjects)]
        print("| | first byte, s: median (least to most) | CPU, s: broker, gateway, processor |\n|---|---|---|")
        for kind in args.kinds:
            sent = body("chat", kind).replace(b'"m"', b'"bench"', 1)
            time_first_byte(pipeline.url, sent)
            before = [cpu_with_workers(pid) for pid in pids]
            times = [time_first_byte(pipeline.url, sent) for _ in range(args.runs)]
            used = [(cpu_with_workers(pid) - was) / args.runs for pid, was in zip(pids, before, strict=True)]
            cells = ", ".join(f"{each:.3f}" for each in used)
            print(f"| {kind} | {statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f}) | {cells} |")


if __name__ == "__main__":
    main()
