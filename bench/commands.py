"""What somebody waits for: the first byte of each command, and `tg-serve` until it is ready, beside bare Python.

    python -m bench.commands                   31 rounds (about two minutes)
    python -m bench.commands --rounds 5        a look

The commands ask one gateway on the memory bus, whose scripted provider answers at once. Every round runs all of them
once, each time beginning with another one, so a row and its floors have met the same machine. `bench/bare_client.py` is
the floor of a command: the standard library's client, which asks the same. The ratios are those of a round. CPU is of
the whole process, to its end. Prints a table, and one JSON object to `--json FILE`.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from bench.subject import Subject, tokengrid, wait_ready

GATEWAY = """
[models.scripted]
provider = "scripted_model:ScriptedModel"

[flows.default]
text-completion = { model = "scripted" }
prompt = {}
agent = {}

[prompts.templates.question]
prompt = "{{ question }}"
"""
OPENAI = """
[models.gpt]
provider = "openai"
options = { key_variable = "BENCH_KEY" }

[flows.default]
text-completion = { model = "gpt" }
"""
# As on a user's machine, where only the first start compiles the imports.
ENVIRONMENT = {"BENCH_KEY": "none-needed", "PYTHONPATH": "examples/agent", "PYTHONDONTWRITEBYTECODE": ""}
NOTHING, FLOOR = "python -c pass", "bare client"
WARM_UP_ROUNDS = 2
QUESTION = "what can you do?"


@dataclass(frozen=True)
class Wait:
    """Milliseconds of one process: to its first byte, or to its end where it writes none; and of CPU to its end."""

    first: float
    cpu: float


def wait_for(command: list[str], *, stop: bool = False) -> Wait:
    """Run a command; `stop` kills it after its first byte, as one that serves does not end."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env={**os.environ, **ENVIRONMENT},
    )
    assert process.stdout is not None
    byte = process.stdout.read(1)
    first = 1000 * (time.perf_counter() - began)
    if stop:
        # Not `process.kill`: of one that has ended, that would take what `wait4` asks for.
        os.kill(process.pid, signal.SIGKILL)
    process.stdout.read()
    # In place of `wait`, which does not tell the CPU of one child.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    # What ends before its first byte would look quick.
    if (not stop and process.returncode) or (not byte and command[1:2] != ["-c"]):
        raise RuntimeError(f"{command} ended with {process.returncode}, and wrote {byte!r}")
    return Wait(first, 1000 * (usage.ru_utime + usage.ru_stime))


def list_rows(url: str, folder: Path) -> dict[str, Callable[[], Wait]]:
    """What is measured, by its name."""
    scripts = Path(sys.executable).parent
    openai = folder / "openai.toml"
    openai.write_text(OPENAI, "utf-8")
    body = json.dumps({"system": "", "prompt": QUESTION, "streaming": True})
    path = "/api/v1/flow/default/service/text-completion"
    bare = [sys.executable, "bench/bare_client.py", urlsplit(url).netloc, path, body]
    ask = {
        "tg-invoke-llm": ["", QUESTION],
        "tg-invoke-prompt": ["question", f"question={QUESTION}"],
        "tg-invoke-agent": [QUESTION],
    }
    serve = [*tokengrid("--port", "0", "--log-level", "warning")]
    commands = {
        NOTHING: [sys.executable, "-c", "pass"],
        FLOOR: bare,
        **{name: [str(scripts / name), *arguments, "-u", url] for name, arguments in ask.items()},
    }
    servers = {"tg-serve, built-in model": serve, "tg-serve, openai": [*serve, "--config", str(openai)]}
    return {
        **{name: partial(wait_for, command) for name, command in commands.items()},
        **{name: partial(wait_for, command, stop=True) for name, command in servers.items()},
    }


def measure(rows: dict[str, Callable[[], Wait]], rounds: int) -> dict[str, list[Wait]]:
    """All rows by turns; which one is first changes with each round."""
    names = list(rows)
    waits: dict[str, list[Wait]] = {name: [] for name in names}
    for number in range(-WARM_UP_ROUNDS, rounds):
        place = number % len(names)
        for name in names[place:] + names[:place]:
            wait = rows[name]()
            if number >= 0:
                waits[name].append(wait)
    return waits


def quarters(values: Iterable[float]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper one."""
    lower, middle, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, middle, upper


def table(waits: dict[str, list[Wait]]) -> dict[str, dict[str, float]]:
    """The figures of each row, printed as they are made."""
    print("| | first byte, ms: median (quartiles) | of `python -c pass` | of the bare client | CPU, ms |")
    print("|---|---|---|---|---|")
    found: dict[str, dict[str, float]] = {}
    for name, row in waits.items():
        lower, middle, upper = quarters(wait.first for wait in row)
        over = {
            floor: statistics.median(ours.first / theirs.first for ours, theirs in zip(row, waits[floor], strict=True))
            for floor in (NOTHING, FLOOR)
        }
        cpu = statistics.median(wait.cpu for wait in row)
        first = f"{middle:.0f} ({lower:.0f} to {upper:.0f})"
        print(f"| {name} | {first} | {over[NOTHING]:.1f} | {over[FLOOR]:.2f} | {cpu:.0f} |")
        found[name] = {"first_ms": middle, "over_nothing": over[NOTHING], "over_bare": over[FLOOR], "cpu_ms": cpu}
    return found


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tokengrid-bench-")))
        (folder / "gateway.toml").write_text(GATEWAY, "utf-8")
        command = tokengrid("--port", "0", "--log-level", "warning", "--config", str(folder / "gateway.toml"))
        subject = stack.enter_context(Subject("gateway", command, folder / "gateway.log", ENVIRONMENT))
        ready = subject.first_line()
        if not ready:
            raise RuntimeError((folder / "gateway.log").read_text("utf-8"))
        url = ready.split()[1].rstrip("/")
        wait_ready(url)
        found = table(measure(list_rows(url, folder), options.rounds))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), "utf-8")


if __name__ == "__main__":
    main()
