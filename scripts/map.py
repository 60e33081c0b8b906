"""First lines of modules -> MAP.md: `make map` writes it, and looks up the files of the names in its rows by hand.

A reader comes with a subject. The rows by hand say which names decide it; a name stays where a file is moved.
"""

import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "MAP.md"
MAX_FILES = 3
"""A name that more modules define leads nowhere."""
BEGIN = "<!-- below: written by `make map` -->\n"
_SUBJECTS = "| subject | look for | in |\n"
_FIRST_LINE = re.compile(r'\A(?:#.*\n)*"""(.+?)(?:"""|\n)')
_DEFINED = re.compile(r"^(?:(?:async )?def |class )?([A-Za-z_]\w*)\b(?=[\[(:]| [:=])", re.MULTILINE)
_MEMBER = r"^    (?:(?:async )?def )?{}\b(?=[\[(:]| [:=])"
_SPAN = re.compile(r"`([^`]+)`")


def members(root: Path = ROOT) -> tuple[str, ...]:
    """The folders of the distributions."""
    return tuple(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]["workspace"]["members"])


class Modules:
    """The modules of every distribution: their text, by their path from the root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._texts = {
            file.relative_to(root).as_posix(): file.read_text("utf-8")
            for member in members(root)
            for file in sorted((root / member).glob("tg_*/**/*.py"), key=lambda file: (file.parent, file.name))
        }
        self._definitions = defaultdict(list)
        for path, text in self._texts.items():
            for name in dict.fromkeys(_DEFINED.findall(text)):
                self._definitions[name].append(path)

    def list_all(self) -> Iterator[str]:
        """The lines of the map: a heading for each package, a row for each module."""
        folder = ""
        for path in self._texts:
            parent, _, name = path.rpartition("/")
            if parent != folder:
                folder = parent
                yield f"\n### `{folder}/`\n| file | what |\n|---|---|"
            yield f"| `{name}` | {self.describe(path)} |"

    def describe(self, path: str) -> str:
        """A module's first line.

        Raises:
            ValueError: it has none.
        """
        first = _FIRST_LINE.match(self._texts[path])
        if first is None:
            raise ValueError(f"{path} says nothing of itself: begin it with a line in quotes, its place in the flow")
        return first[1].strip().replace("|", "\\|")

    def find(self, span: str) -> list[str]:
        """Where what is in backticks is: `Name`, `Class.member`, `module.name`, `folder/` or `file.py`.

        Raises:
            ValueError: nowhere, or in too many files.
        """
        if span.endswith("/"):
            return [span] if (self.root / span).is_dir() else _lead_nowhere(span)
        if span.endswith(".py"):
            named = [path for path in self._texts if f"/{path}".endswith(f"/{span}")]
            return named if len(named) == 1 else [] if named else _lead_nowhere(span)
        owner, _, name = span.rpartition(".")
        found = self._definitions[name]
        if owner:
            file = f"/{owner.replace('.', '/')}.py"
            member = re.compile(_MEMBER.format(re.escape(name)), re.MULTILINE)
            in_class = [path for path in self._definitions[owner] if member.search(self._texts[path])]
            found = [path for path in found if path.endswith(file)] or in_class
        return found if 0 < len(found) <= MAX_FILES else _lead_nowhere(span, found)


def _lead_nowhere(span: str, found: Sequence[str] = ()) -> NoReturn:
    raise ValueError(f"{len(found)} files define `{span}`: name what 1 to {MAX_FILES} define {' '.join(found)}".strip())


def write_page(page: str, modules: Modules) -> str:
    """The page with the files of its rows by hand, and with all modules.

    Raises:
        ValueError: a row leads nowhere, two rows have one subject, or a module says nothing of itself.
    """
    by_hand, _, _ = page.partition(BEGIN)
    above, header, table = by_hand.partition(_SUBJECTS)
    subjects = Counter(line.split(" | ")[0].strip("| ") for line in table.splitlines() if line.startswith("| "))
    faults = [f"{count} rows are of {subject!r}: make them one" for subject, count in subjects.items() if count > 1]
    rows = list[str]()
    for line in table.splitlines():
        try:
            rows.append(_fill_in(line, modules) if line.startswith("| ") else line)
        except ValueError as error:
            faults.append(str(error))
    if faults:
        raise ValueError("\n".join(faults))
    return "\n".join([above + header + "\n".join(rows), BEGIN.rstrip(), *modules.list_all(), ""])


def _fill_in(row: str, modules: Modules) -> str:
    what, names = row.strip("| ").split(" | ")[:2]
    files = dict.fromkeys(file for span in _SPAN.findall(names) for file in modules.find(span))
    return f"| {what} | {names} | {', '.join(f'`{file}`' for file in files)} |"


if __name__ == "__main__":
    try:
        PAGE.write_text(write_page(PAGE.read_text("utf-8"), Modules(ROOT)), "utf-8")
    except ValueError as error:
        sys.exit(f"{PAGE.name} has wrong rows:\n{error}")
