"""The list of planted faults fits the code, without running any: `python -m tests.planted_faults` does that."""

import ast
import re

import pytest

from tests.planted_faults.__main__ import PACKAGES
from tests.planted_faults.fault import ROOT, Fault, Stale
from tests.planted_faults.faults import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fits_the_code(fault: Fault) -> None:
    texts: dict[str, str] = {}
    for place in fault.places:
        assert place.file.startswith(tuple(f"{package}/" for package in PACKAGES)), "it is in no package that is copied"
        texts[place.file] = place.plant(texts.get(place.file) or (ROOT / place.file).read_text("utf-8"))
    assert all(map(ast.parse, texts.values()))
    if "::" in fault.found_by:
        file, name = re.sub(r"\[.*", "", fault.found_by).split("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)


def test_there_are_many_and_each_has_a_name() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


def test_a_fault_that_is_stale_is_told() -> None:
    with pytest.raises(Stale, match="this stands 0 times"):
        FAULTS[0].places[0].plant("another text")
