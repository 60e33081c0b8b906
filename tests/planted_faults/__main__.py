"""`python -m tests.planted_faults`: plant one fault after the other in a copy of the code, and say who finds it."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from tests.planted_faults.fault import ROOT, SIMULATION, Fault
from tests.planted_faults.faults import FAULTS

PACKAGES: Final = ("schema/tg_schema", "base/tg_base", "flow/tg_flow", "gateway/tg_gateway", "doors/tg_doors",
                   "picker/tg_picker", "cli/tg_client", "cli/tg_cli", "serve/tg_serve")  # fmt: skip
SEEDS: Final = 2000
"""Worlds that the simulation looks at, at most; most faults show in one of the first hundred."""
THEMED_SEEDS: Final = 200
TEST_SECONDS: Final = "60"
"""After which a test that hangs has found what it looks for."""
FAILED: Final = 1
"""What the simulation and pytest exit with where something is broken."""
_FOUND: Final = re.compile(r"^seed \d+: [\w-]+.*", re.MULTILINE)


def main() -> int:
    """0 = all of them are found."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted_faults", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name or file has this in it")
    parser.add_argument("--first", type=int, default=0, help="the simulation's first seed (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many at most (default: %(default)s)")
    arguments = parser.parse_args()
    chosen = [each for each in FAULTS if arguments.only in each.name or arguments.only in each.file]
    with tempfile.TemporaryDirectory() as folder:
        copy_packages(Path(folder))
        found = [_report(fault, Path(folder), range(arguments.first, arguments.first + arguments.seeds))
                 for fault in chosen]  # fmt: skip
    print(f"{sum(found)} of {len(chosen)} planted faults are found")
    return 0 if all(found) else 1


def copy_packages(folder: Path) -> None:
    """With their bytecode: only what a fault changes is compiled anew."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / Path(package).name)


def _report(fault: Fault, folder: Path, seeds: range) -> bool:
    began = time.monotonic()
    with planted(fault, folder):
        said = _test(fault, folder) if "::" in fault.found_by else simulate(fault, folder, seeds)
    print(f"{'found' if said else 'MISSED':<6} {time.monotonic() - began:5.1f} s  {fault.name}: {said}", flush=True)
    return bool(said)


@contextmanager
def planted(fault: Fault, folder: Path) -> Iterator[None]:
    """Inside the block the copied packages have the fault."""
    before: dict[Path, str] = {}
    try:
        for place in fault.places:
            file = folder / place.file.partition("/")[2]
            text = file.read_text("utf-8")
            before.setdefault(file, text)
            _write(file, place.plant(text))
        yield
    finally:
        for file, text in before.items():
            _write(file, text)


def _write(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
    # Python compares seconds and sizes alone: what it has compiled may seem to be of this text.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def simulate(fault: Fault, folder: Path, seeds: range) -> str:
    """The first broken promise; empty = there is none."""
    runs = [(seeds, fault.worlds)]
    if fault.seed is not None:
        runs = [(range(fault.seed, fault.seed + 1), fault.worlds), *runs]
    elif fault.found_by == SIMULATION and fault.worlds == "any":
        # First those in which something is at stake.
        runs = [(seeds[:THEMED_SEEDS], "themed"), *runs]
    for numbers, worlds in runs:
        options = ["--first", str(numbers.start), "--seeds", str(len(numbers))]
        if fault.found_by == SIMULATION:
            options += ["--processes", "1", "--until", fault.until, "--worlds", worlds]
        if found := _FOUND.search(_run(folder, folder, fault.found_by, *options)):
            return f"{worlds} {found[0][:120]}"
    return ""


def _test(fault: Fault, folder: Path) -> str:
    """The test, where it fails; empty = it does not."""
    return (
        fault.found_by
        if _run(folder, ROOT, "pytest", "-x", "-q", "--timeout", TEST_SECONDS, "-m", "not connected", fault.found_by)
        else ""
    )


def _run(folder: Path, where: Path, *module: str) -> str:
    """What it says where something is broken; empty = nothing is.

    Raises:
        RuntimeError: it cannot run at all.
    """
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", *module]
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in {0, FAILED}:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout if done.returncode == FAILED else ""


if __name__ == "__main__":
    sys.exit(main())
