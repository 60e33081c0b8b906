"""ARCHITECTURE.md, "Where is it?": each row leads from its words to files that exist, and to names that are in them."""

import re
from pathlib import Path

import pytest

from tests.docs.page import ROOT
from tests.docs.test_names import OURS

_HEADING = re.compile(r"^### .+: `([\w/]+/)`$")
_FILE = re.compile(r"`([\w/]+\.py)`(?! of its)(?: \(((?:`\w+`(?:, )?)+)\))?")
_NAME = re.compile(r"`(\w+)`")
_DEFINED = r"^ *(?:(?:async )?def |class )?{}\b(?=[\[(:]| [:=])"


def read_rows(page: str) -> list[tuple[str, str, str]]:
    """Of each row of the map: its heading's folder, what it is about, and its files."""
    rows: list[tuple[str, str, str]] = []
    folder = ""
    for line in page.partition("## Where is it?")[2].splitlines():
        if line.startswith("#"):
            heading = _HEADING.match(line)
            assert heading, f"this heading names no folder: {line}"
            folder = heading[1]
        elif line.startswith("| ") and line != "| what | file |":
            what, files = line.strip("| ").split(" | ")
            rows.append((folder, what, files))
    return rows


def find_file(folder: str, path: str) -> Path:
    """A path starts at the heading's folder, or at one of the repository's."""
    return ROOT / path if path.partition("/")[0] in OURS else ROOT / folder / path


def faults(folder: str, files: str) -> list[str]:
    """What of a row leads nowhere."""
    missing = [] if files.startswith("`") else [f"it begins with no file: {files}"]
    for path, names in _FILE.findall(files):
        file = find_file(folder, path)
        if not file.is_file():
            missing.append(f"{folder} has no {path}")
            continue
        text = file.read_text("utf-8")
        missing += [
            f"{path} does not define {name}"
            for name in _NAME.findall(names)
            if not re.search(_DEFINED.format(name), text, re.MULTILINE)
        ]
    return missing


ROWS = read_rows((ROOT / "ARCHITECTURE.md").read_text("utf-8"))


@pytest.mark.parametrize("folder", sorted({folder for folder, _, _ in ROWS}))
def test_each_row_leads_to_its_file(folder: str) -> None:
    assert [fault for place, _, files in ROWS if place == folder for fault in faults(place, files)] == []


def test_no_two_rows_of_a_heading_are_about_the_same() -> None:
    subjects = [(folder, what) for folder, what, _ in ROWS]
    assert len(subjects) == len(set(subjects))


def test_a_row_that_leads_nowhere_is_found() -> None:
    folder = "base/tg_base/protocol/"
    assert faults(folder, "`heartbeat.py` (`HeartbeatTiming`); the clock: `clocks.py`") == []
    assert faults(folder, "`heartbeat.py` (`Nobody`)") == ["heartbeat.py does not define Nobody"]
    assert faults(folder, "`heart.py`; more") == [f"{folder} has no heart.py"]
    assert faults(folder, "the file `heartbeat.py`") == ["it begins with no file: the file `heartbeat.py`"]
