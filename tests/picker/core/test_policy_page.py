"""The page of the policies says how the default decides: each of its constants, and a test that holds the constant."""

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.page import ROOT
from tg_picker.core.policies import predicted_wait
from tg_picker.core.state import server_speed, server_state

PAGE = (ROOT / "picker/docs/instance-policies.md").read_text("utf-8")
TABLE = PAGE.partition("| constant |")[2].partition("\n\n")[0].splitlines()[2:]
CELLS = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in TABLE]
SOURCES = {file.stem: file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py")}
BOUNDS_OF_MEMORY = {"_MAX_REMEMBERED", "MAX_FALLBACKS"}


def constants(module: ModuleType) -> Iterator[tuple[str, float]]:
    """The numbers that a module names."""
    return ((name, value) for name, value in vars(module).items() if name.isupper() and isinstance(value, int | float))


@pytest.mark.parametrize("module", [predicted_wait, server_speed, server_state])
def test_each_constant_is_explained(module: ModuleType) -> None:
    named = {name for cells in CELLS for name in re.findall(r"`([A-Z_]+)(?:\.\.\.)?`", cells[0])}
    families = tuple(name for name in named if name.endswith("_"))
    found = dict(constants(module)).keys() - BOUNDS_OF_MEMORY - {"BLOCK_TOKENS"}
    missing = {name for name in found if name not in named and not name.startswith(families)}
    # Those of large pools are a sentence below the table.
    assert missing <= {"SMALL_POOL_SERVERS", "MAX_CANDIDATES"}
    sentence = f"more than {predicted_wait.SMALL_POOL_SERVERS} servers it looks at {predicted_wait.MAX_CANDIDATES} "
    assert sentence in PAGE


@pytest.mark.parametrize("module", [predicted_wait, server_speed, server_state])
def test_each_constant_is_as_the_page_says(module: ModuleType) -> None:
    values = dict(constants(module)) | {"SOON_SHARE": "half"}
    for cells in CELLS:
        for name in values.keys() & set(re.findall(r"\w+", cells[0])):
            assert str(values[name]).removesuffix(".0") in re.findall(r"half|[\d.]+", cells[1]), name


def test_each_constant_has_a_test_that_is_there() -> None:
    assert len(CELLS) > 10
    for cells in CELLS:
        tests = re.findall(r"`(test_\w+)`", cells[3])
        assert tests
        assert all(test in SOURCES or any(f"def {test}(" in text for text in SOURCES.values()) for test in tests), tests
