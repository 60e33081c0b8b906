"""A hundred models in one process, beside one model in one: start, threads, rest and first tokens, in one run.

    python -m bench.many_models                    over a real Pulsar; medians of three (about three minutes)
    python -m bench.many_models --runs 1           a look
    python -m bench.many_models --bus memory       gateway and models in one process

Each side is a processor process (`tg-serve --only text-completion`) with models of the openai provider, a gateway, and
a namespace of its own; the fake provider answers both. Both sides are started one after the other, rest together, and
are asked in turns, a model after the other. Prints a table, and one JSON object to `--json FILE`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import urlsplit

from bench.pipeline import free_port, provider
from bench.stamped import percentile
from bench.subject import Subject, tokengrid, wait_ready
from tests.pulsar_server import PulsarServer

SETTLE_SECONDS = 3.0
"""Between the start and the rest that is measured: what the start leaves to be done is no rest."""
WARM_UP_REQUESTS = 100
# As on a user's machine, where only the first start compiles the imports.
ENVIRONMENT = {"BENCH_KEY": "none-needed", "PYTHONDONTWRITEBYTECODE": ""}
MODEL = """
[models.m{number}]
provider = "openai"
options = {{ base_url = "{provider}/v1", key_variable = "BENCH_KEY" }}
{more}
[flows.f{number}]
text-completion = {{ model = "m{number}" }}
"""


@dataclass(frozen=True)
class Side:
    """One side that runs: its processes, the first of which has the models, and where it is asked."""

    models: int
    ready: float
    subjects: list[Subject]
    url: str


@contextmanager
def serving(models: int, namespace: str, fake: str, folder: Path, options: argparse.Namespace) -> Iterator[Side]:
    """Start one side; it is ready when the process with the models says so, and its gateway too."""
    tables = (MODEL.format(number=number, provider=fake, more=options.model_lines) for number in range(models))
    config = folder / f"{models}.toml"
    config.write_text(f'[bus]\nnamespace = "{namespace}"\n' + "".join(tables), "utf-8")
    port = free_port()
    common = ["--config", str(config), "--bus", options.url, "--port", str(port), "--log-level", "warning"]
    only = [["--only", "text-completion"], ["--only", "gateway"]] if options.bus == "pulsar" else [[]]
    with ExitStack() as stack:
        began, ready, subjects = time.monotonic(), 0.0, list[Subject]()
        for arguments in only:
            log = folder / f"{models}-{len(subjects)}.log"
            subject = Subject(f"{models}", tokengrid(*arguments, *common), log, ENVIRONMENT)
            subjects.append(stack.enter_context(subject))
            if not subject.first_line():
                raise RuntimeError(log.read_text("utf-8"))
            ready = ready or time.monotonic() - began
        url = f"http://127.0.0.1:{port}"
        wait_ready(url)
        yield Side(models, ready, subjects, url)


class Asker:
    """Asks the models of one side, one after the other."""

    def __init__(self, side: Side) -> None:
        self._numbers = cycle(range(side.models))
        self._connection = HTTPConnection(urlsplit(side.url).netloc, timeout=30)
        self.milliseconds: list[float] = []

    def ask(self) -> None:
        """One request to the next model, with the time to its first chunk."""
        body = json.dumps({"system": "", "prompt": "chunks=1 gap=0", "streaming": True})
        began = time.perf_counter()
        path = f"/api/v1/flow/f{next(self._numbers)}/service/text-completion"
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        first = answer.readline()
        self.milliseconds.append(1000 * (time.perf_counter() - began))
        rest = answer.read()
        if answer.status != 200 or b'"error":{' in first + rest:
            raise RuntimeError(f"{path}: {answer.status} {first + rest!r}")


def run(options: argparse.Namespace, fake: str, folder: Path) -> dict[str, float]:
    """One run of both sides."""
    with (
        serving(1, "tg/request", fake, folder, options) as one,
        serving(options.models, "tg/response", fake, folder, options) as many,
    ):
        sides = {"one": one, "many": many}
        time.sleep(SETTLE_SECONDS)
        cpu = {name: side.subjects[0].cpu for name, side in sides.items()}
        time.sleep(options.rest)
        row: dict[str, float] = {}
        for name, side in sides.items():
            row[f"{name}_ready_s"] = side.ready
            row[f"{name}_rest_percent"] = 100 * (side.subjects[0].cpu - cpu[name]) / options.rest
        askers = {name: Asker(side) for name, side in sides.items()}
        for _ in islice(cycle([None]), WARM_UP_REQUESTS + options.requests):
            for asker in askers.values():
                asker.ask()
        for name, asker in askers.items():
            late = asker.milliseconds[WARM_UP_REQUESTS:]
            row[f"{name}_first_p50_ms"], row[f"{name}_first_p99_ms"] = percentile(late, 50), percentile(late, 99)
            row[f"{name}_threads"] = sides[name].subjects[0].threads
            row[f"{name}_resident_mib"] = sides[name].subjects[0].resident
        return row


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bus", choices=("pulsar", "memory"), default="pulsar")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rest", type=float, default=20.0, help="seconds of rest that are measured")
    parser.add_argument("--requests", type=int, default=500, help="to each side, after the warm-up")
    parser.add_argument("--model-lines", default="", help="further lines of each model's table, as 'lazy = true'")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-bench-")))
        broker = stack.enter_context(PulsarServer() if options.bus == "pulsar" else nullcontext())
        options.url = "memory://" if broker is None else broker.service_url
        fake = stack.enter_context(provider(folder))
        rows = [run(options, fake, folder) for _ in range(options.runs)]
    found = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    print("| models | ready, s | threads | at rest, % of a core | first token p50 / p99, ms | resident, MiB |")
    print("|---|---|---|---|---|---|")
    for models, side in ((1, "one"), (options.models, "many")):
        first = f"{found[f'{side}_first_p50_ms']:.2f} / {found[f'{side}_first_p99_ms']:.2f}"
        start = f"{found[f'{side}_ready_s']:.2f} | {found[f'{side}_threads']:.0f}"
        resident = f"{found[f'{side}_resident_mib']:.0f}"
        print(f"| {models} | {start} | {found[f'{side}_rest_percent']:.2f} | {first} | {resident} |")
    ratio = statistics.median(row["many_first_p99_ms"] / row["one_first_p99_ms"] for row in rows)
    print(f"\nfirst token p99, many over one, paired: {ratio:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "medians": found}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
