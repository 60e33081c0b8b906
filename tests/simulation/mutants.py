"""The protocol's known defects, each as the text of its mend and the text without it; the simulation must find them."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("schema/tg_schema", "base/tg_base", "flow/tg_flow")


@dataclass(frozen=True)
class Change:
    """One place: what stands in a file, and what stands there in the mutant."""

    file: str
    mended: str
    broken: str


@dataclass(frozen=True)
class Mutant:
    """A defect that was there once.

    Attributes:
        name: for people.
        promises: which of the promises it breaks; any one of them counts.
        changes: how to bring it back.
        seed: of a world that found it.
    """

    name: str
    promises: tuple[str, ...]
    changes: tuple[Change, ...]
    seed: int = 0


class OutOfStep(Exception):
    """A text of a mutant is not in the code, or not just once: the table must follow the code."""


def planted(mutant: Mutant, folder: Path) -> Path:
    """Copy the packages into a folder, with the defect in them; return where to import them from.

    Raises:
        OutOfStep: the table does not fit the code.
    """
    for package in PACKAGES:
        # With its bytecode: only what is changed below is compiled anew, because it gets another time.
        shutil.copytree(ROOT / package, folder / Path(package).name)
    for change in mutant.changes:
        file = folder / change.file
        text = file.read_text("utf-8")
        if text.count(change.mended) != 1:
            raise OutOfStep(
                f"{mutant.name}: this stands {text.count(change.mended)} times in {change.file}:\n{change.mended}"
            )
        file.write_text(text.replace(change.mended, change.broken), "utf-8")
    return folder


def hunted(folder: Path, mutant: Mutant, seeds: int) -> str:
    """Let the simulation look for a seed that breaks one of the promises; return what it says, empty where none is.

    The seed that found the mutant last is tried first. It finds it until a change of the protocol or of the simulation
    gives that seed another world; then all are tried, which takes a minute for the rarest.
    """
    return _hunted(folder, mutant, range(mutant.seed, mutant.seed + 1)) or _hunted(folder, mutant, range(seeds))


def _hunted(folder: Path, mutant: Mutant, seeds: range) -> str:
    until = ",".join(mutant.promises)
    numbers = ["--first", str(seeds.start), "--seeds", str(len(seeds)), "--processes", str(min(len(seeds), 2))]
    command = [sys.executable, "-m", "tests.simulation", *numbers, "--until", until]
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout if done.returncode else ""


MUTANTS = (
    Mutant(
        "streams hang when their gateway was silent and returned",
        ("ends", "starves"),
        (
            Change(
                "tg_base/client/attempts.py",
                "elif processor is not None and attempt.link < self._presence.over_below(processor):",
                "elif False:",
            ),
        ),
        seed=112,
    ),
    Mutant(
        "an idle flow holds the slot",
        ("starves", "needless-error"),
        (
            Change(
                "tg_base/server/processor.py",
                "            await self._slots.wait(route)\n"
                "            if descriptors.short:\n"
                "                await descriptors.until_enough()\n"
                "            delivery = await anext(requests)\n",
                "            held = Slot(self._slots, route)\n"
                "            while not await held.take():\n"
                "                pass\n"
                "            delivery = await anext(requests)\n",
            ),
            Change(
                "tg_base/server/processor.py",
                "                slot = await self._admit(route, delivery, call)\n",
                "                slot = None if self._drop_unwanted(route, delivery, call) else held\n",
            ),
        ),
        seed=25,
    ),
    Mutant(
        "a reader that ends leaves its process deaf",
        ("starves", "ends", "needless-error", "rest"),
        (
            Change(
                "tg_base/protocol/subscriptions.py",
                "        self._open.clear()\n        self._ended.set()\n        self._subscriptions.ended(self)\n",
                "        self._open.clear()\n",
            ),
        ),
        seed=74,
    ),
    Mutant(
        "unreadable properties end the task that reads them",
        ("defect",),
        (
            Change(
                "tg_base/protocol/request_headers.py",
                "        with suppress(BadRequest):\n            stream =",
                "        if True:\n            stream =",
            ),
        ),
        seed=356,
    ),
    Mutant(
        "an old word that a request is wanted is believed",
        ("paid-twice",),
        (
            Change(
                "tg_base/server/request_task.py",
                "if asked_at is not None and asyncio.get_running_loop().time() - asked_at < self._patience:",
                "if asked_at is not None:",
            ),
            Change(
                "tg_base/server/request_task.py",
                "self._wanted, self._wanted_at = True, asked_at",
                "self._wanted, self._wanted_at = True, asyncio.get_running_loop().time()",
            ),
        ),
        seed=211,
    ),
    Mutant(
        "what may have been delivered before is begun unasked",
        ("paid-twice",),
        (Change("tg_base/server/request_task.py", "_wanted = call.fresh or call.reply is None", "_wanted = True"),),
        seed=42,
    ),
    Mutant(
        "what was sent past the queue and is not heard of is not queued",
        ("ends", "starves"),
        (Change("tg_base/client/attempts.py", "if self._warm.is_over(stream, dead, self._clock()):", "if False:"),),
        seed=220,
    ),
    Mutant(
        "a processor whose clock is ahead drops everything",
        ("starves", "needless-error"),
        (
            Change(
                "tg_base/protocol/request_headers.py",
                "clocks.delays(reply, delivery.age)",
                "(delivery.age, delivery.age)",
            ),
        ),
        seed=8,
    ),
)
