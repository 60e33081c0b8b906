"""Source text -> the figures that we hold ourselves to: `make figures` prints them.

Sizes, annotations, docstrings, comments and broad excepts come from syntax trees; arrows and circles from the tables of
tests/unit/test_arrows.py; the walk from a traced request (scripts/walk.py); types from mypy.
"""

import asyncio
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from statistics import median_low, quantiles

from scripts.graph import all_imports, arrows_up, circles, floors, packages_of, run_time_imports
from scripts.source import Function, Source
from scripts.walk import walk
from tests.unit.source_imports import FILES, PACKAGES, ROOMS, ROOT, room_of, shown
from tg_base.telemetry import configure_log

MAX_FUNCTION_LINES = 60
MAX_WALK = ((130, 60), (45, 22))
"""Calls and changes of file: from the door to the provider, and for a chunk on its way back."""
MIN_DUPLICATE_STATEMENTS = 5
"""Equal bodies of fewer statements are likeness, not repetition."""


@dataclass(frozen=True)
class Part:
    """A column: one distribution, or all of them."""

    name: str
    sources: tuple[Source, ...]

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All of them, nested ones and methods too."""
        return tuple(chain.from_iterable(source.functions for source in self.sources))

    @cached_property
    def code_lines(self) -> int:
        """Lines without comments, blanks and docstrings."""
        return sum(source.code_lines for source in self.sources)

    def total(self, count: Callable[[Source], int]) -> int:
        """The sum of a figure over all files."""
        return sum(map(count, self.sources))


@cache
def shipped() -> tuple[Part, ...]:
    """What is shipped together, then each distribution."""
    houses = [
        Part(folder, tuple(_read(FILES[module] for module in FILES if ROOMS[room_of(module)] == folder)))
        for folder in dict.fromkeys(ROOMS.values())
    ]
    return Part("shipped", tuple(chain.from_iterable(part.sources for part in houses))), *houses


@cache
def parts() -> tuple[Part, ...]:
    """What is shipped, then what is not."""
    others = [Part(folder, tuple(_read((ROOT / folder).rglob("*.py")))) for folder in ("bench", "tests", "scripts")]
    return *shipped(), *others


def _read(paths: Iterable[Path]) -> list[Source]:
    return [Source(path) for path in sorted(paths)]


def broad_excepts() -> list[str]:
    """Where shipped code catches every exception, as file:line."""
    return [
        f"{source.path.relative_to(ROOT)}:{line}" for source in shipped()[0].sources for line in source.broad_excepts
    ]


def duplicate_functions(part: Part) -> int:
    """Pairs of functions whose bodies are equal but for names and values."""
    shapes = Counter(function.shape for function in part.functions if function.statements >= MIN_DUPLICATE_STATEMENTS)
    return sum(count * (count - 1) // 2 for count in shapes.values())


def table() -> list[list[str]]:
    """The figures of every part, a row each."""
    rows: dict[str, Callable[[Part], str]] = {
        "code lines": lambda part: f"{part.code_lines:,}",
        "files": lambda part: f"{len(part.sources)}",
        "file lines: median/p90/max": lambda part: _spread([source.lines for source in part.sources]),
        "function lines: median/p90/max": lambda part: _spread([function.lines for function in part.functions]),
        f"functions over {MAX_FUNCTION_LINES}": lambda part: (
            f"{sum(function.lines > MAX_FUNCTION_LINES for function in part.functions)} of {len(part.functions):,}"
        ),
        "annotated %": lambda part: _share([function.annotated for function in part.functions]),
        "public names with docstring %": lambda part: _share(
            list(chain.from_iterable(source.documented for source in part.sources))
        ),
        "comments per 100 lines": lambda part: f"{100 * part.total(lambda s: s.comments) / part.code_lines:.2f}",
        "broad excepts": lambda part: f"{part.total(lambda s: len(s.broad_excepts))}",
        "equal functions (pairs)": lambda part: f"{duplicate_functions(part)}",
    }
    return [["", *(part.name for part in parts())]] + [
        [name, *(figure(part) for part in parts())] for name, figure in rows.items()
    ]


def _spread(sizes: Sequence[int]) -> str:
    if not sizes:
        return "-"
    tenths = quantiles(sizes, n=10, method="inclusive") if len(sizes) > 1 else [sizes[0]] * 9
    return f"{median_low(sizes)}/{tenths[8]:.0f}/{max(sizes)}"


def _share(holds: Sequence[bool]) -> str:
    return f"{100 * sum(holds) / len(holds):.0f}" if holds else "-"


def structure() -> list[tuple[str, str]]:
    """The figures of the whole: its graph, its faces, what stands in it twice."""
    faces = [FILES[package].read_text("utf-8").count("\n") for package in PACKAGES]
    modules = (all_imports(), run_time_imports())
    folders = tuple(packages_of(graph) for graph in modules)
    return [
        ("circles of modules, all imports / run-time", " / ".join(str(len(circles(graph))) for graph in modules)),
        ("circles of folders, all imports / run-time", " / ".join(str(len(circles(graph))) for graph in folders)),
        ("imports, all / run-time", " / ".join(f"{sum(map(len, graph.values())):,}" for graph in modules)),
        ("packages, arrows between them", f"{len(PACKAGES)}, {sum(map(len, folders[0].values()))}"),
        ("arrows up", str(len(arrows_up()))),
        ("import depth, modules / folders", f"{floors(modules[0])} / {floors(folders[0])} floors"),
        ("faces: lines median/p90/max", _spread(faces)),
        ("faces: names", str(sum(len(shown(package)) for package in PACKAGES))),
        ("broad excepts", ", ".join(broad_excepts()) or "none"),
        ("duplicate pairs per 1,000 lines", duplicates()),
    ]


def duplicates() -> str:
    """Repeated runs of lines, where a command `duplicates` is installed; equal functions otherwise.

    Two figures: all pairs without boilerplate, and those of them that repeat what functions do. The others repeat
    declarations: two wire formats have a field in common, or two commands an option.
    """
    code_lines = parts()[0].code_lines / 1000
    command = shutil.which("duplicates")
    if command is None:
        return f"{duplicate_functions(parts()[0]) / code_lines:.2f} (equal functions)"
    sources = {source.path: source for source in parts()[0].sources}
    pairs = boilerplate = logic = 0
    for folder in dict.fromkeys(ROOMS.values()):
        arguments = ["--most", "200", "--repo", str(ROOT / folder)]
        done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
        for one, other, marks in _PAIR.findall(done.stdout):
            pairs += 1
            boilerplate += "boilerplate" in marks
            runs = [_read_run(ROOT / folder / name) for name in (one, other)]
            logic += "boilerplate" not in marks and all(_is_logic(sources.get(path), lines) for path, lines in runs)
    real = pairs - boilerplate
    return (
        f"{real / code_lines:.2f} ({pairs} pairs within distributions, {boilerplate} boilerplate); "
        f"{logic / code_lines:.2f} of logic ({logic} pairs)"
    )


_PAIR = re.compile(r"^D\d+ (\S+) ~ (\S+)(.*)$", re.MULTILINE)


def _read_run(place: Path) -> tuple[Path, range]:
    """`file:first-last` -> the file and its lines."""
    name, _, lines = place.name.rpartition(":")
    first, last = map(int, lines.split("-"))
    return place.with_name(name), range(first, last + 1)


def _is_logic(source: Source | None, lines: range) -> bool:
    """Whether at least half of these lines are what functions do; what is no Python of ours is taken for it."""
    return source is None or 2 * len(source.body_lines.intersection(lines)) >= len(lines)


def strict_types() -> str:
    """What mypy says of everything that it is configured to check."""
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False)
    return f"mypy exits with {done.returncode}: {done.stdout.strip().rpartition(chr(10))[2]}"


def main() -> None:
    """Print everything."""
    configure_log("auto", level="error")
    rows = table()
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        print(name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)))
    print()
    for name, figure in structure():
        print(f"{name}: {figure}")
    print(f"strict types: {strict_types()}")
    ways = ("request, door to provider", "chunk, provider to socket")
    for name, way, (calls, changes) in zip(ways, asyncio.run(walk()), MAX_WALK, strict=True):
        counted = f"{len(way.calls)} calls (goal: {calls}), {way.changes} changes of file (goal: {changes})"
        print(f"\nwalk of a {name}: {counted}, {len(way.files)} files")
        print("\n".join(f"  {number:2} {module}" for number, module in enumerate(way.files, 1)))


if __name__ == "__main__":
    main()
