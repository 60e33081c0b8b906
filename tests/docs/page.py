"""A page of Markdown -> its code blocks, each with the reason for which it is not run, if any."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ELSEWHERE = (
    "README.md",
    "ARCHITECTURE.md",
    "bench/SOAK.md",
    "deploy/RUNBOOK.md",
    "deploy/helm/tokengrid/README.md",
    "deploy/systemd/README.md",
    "cli/OPTIONS.md",
    "tests/PROOFS.md",
)
_TESTS = ("clients", "door_matrix", "simulation")
PAGES = [
    *(ROOT / name for name in _ELSEWHERE),
    *(ROOT / "tests" / name / "README.md" for name in _TESTS),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("*/docs/*.md")),
]

_COMMENT = re.compile(r"<!-- not run(?: \((?P<command>[^)]+)\))?: (?P<reason>.+?) -->")
_FILE = re.compile(r"into (?:a file )?`(?P<name>[\w.]+)`:$")


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        line: of its first fence.
        language: of the fence.
        text: between the fences.
        lead: the last line of prose above it.
        skipped: command -> why it is not run; "" = the whole block.
        follows: whether nothing but blank lines is between it and the block above.
    """

    line: int
    language: str
    text: str
    lead: str
    skipped: dict[str, str]
    follows: bool

    @property
    def reason(self) -> str | None:
        """Why the block as a whole is not run; None if it is."""
        return self.skipped.get("")

    @property
    def file(self) -> str | None:
        """The file that the reader is told to put it into."""
        told = _FILE.search(self.lead)
        return told["name"] if told else None

    @property
    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command of a shell block, and the output that is shown below it."""
        console = self.language == "console"
        command, shown = "", ""
        for line in self.text.splitlines():
            if command.endswith("\\"):
                command += "\n" + line
            elif console and not line.startswith("$ "):
                shown += line + "\n"
            else:
                if command:
                    yield command, shown
                command, shown = line.removeprefix("$ ") if console else line, ""
        if command:
            yield command, shown


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page in their order.

    Raises:
        ValueError: a fence is not closed, or a block is marked by indentation, which names no language.
    """
    skipped: dict[str, str] = {}
    lead, follows = "", False
    lines = iter(enumerate(page.read_text("utf-8").splitlines(), 1))
    for number, line in lines:
        if line.startswith("    ") and not lead.startswith(("-", "  ")):
            raise ValueError(f"{page.name}, line {number}: write blocks of code between fences")
        if comment := _COMMENT.match(line):
            skipped[comment["command"] or ""] = comment["reason"]
        elif line.startswith("```"):
            text = "".join(_until_fence(page, number, lines))
            yield Block(number, line[3:].strip(), text, lead, skipped, follows)
            skipped, lead, follows = {}, "", True
        elif line.strip():
            lead, follows = line, False
    if skipped:
        raise ValueError(f"{page.name}: no block follows {skipped}")


def _until_fence(page: Path, opened: int, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    for _, line in lines:
        if line.startswith("```"):
            return
        yield line + "\n"
    raise ValueError(f"{page.name}, line {opened}: this fence is not closed")
