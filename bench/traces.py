"""What traces cost: three servers under the same load in turn, which record no span, 1 % and 100 % of the traces.

    python -m bench.traces --runs 7

Prints the median of the paired ratios of CPU. The collector takes everything, and is not counted.
"""

import argparse
import statistics
import tempfile
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from typing_extensions import override

from bench.pipeline import CONFIGURATION, ENVIRONMENT, MANY, Load, load, provider, started
from bench.subject import Subject, tokengrid, wait_ready

SHORT = Load("16 streams of 2 chunks", 16, 2, 1, rounds=40)
SHARES = (0.01, 1.0)


class Collector(BaseHTTPRequestHandler):
    """Takes what comes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read it."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    @override
    def log_message(self, *_: object) -> None:
        """Nothing."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    runs: int = parser.parse_args().runs
    with ExitStack() as stack:
        collector = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Collector))
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-traces-")))
        fake = stack.enter_context(provider(folder))
        servers = []
        for share in (None, *SHARES):
            place = folder / str(share)
            place.mkdir()
            endpoint = f'[traces]\nendpoint = "http://127.0.0.1:{collector.server_port}"\nshare = {share}\n'
            url, common = started(place, fake, "memory://", CONFIGURATION + (endpoint if share else ""))
            subject = Subject("tg-serve", tokengrid(*common), place / "log", ENVIRONMENT)
            servers.append((url, stack.enter_context(subject)))
        for url, _ in servers:
            wait_ready(url)
        for shape in (SHORT, MANY):
            for url, subject in servers:
                load(url, "sse", shape, [subject])
            rows = [
                [load(url, "sse", shape, [subject])["cpu_tg-serve"] for url, subject in servers] for _ in range(runs)
            ]
            ratios = [statistics.median(row[1 + place] / row[0] for row in rows) for place in range(len(SHARES))]
            print(shape.name, {share: round(ratio, 3) for share, ratio in zip(SHARES, ratios, strict=True)}, flush=True)
        collector.shutdown()


if __name__ == "__main__":
    main()
