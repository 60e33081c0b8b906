"""docs/promises.md names a proof for every promise, and every proof is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
PROOFS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_scenario_has_its_row_and_its_proof() -> None:
    assert [int(row.split("|")[1]) for row in ROWS] == list(range(1, 33))
    for row in ROWS:
        assert re.search(r"`tests/[\w/]+\.py::\w+`|does not apply", row), row


@pytest.mark.parametrize(("file", "name"), PROOFS)
def test_every_proof_is_there(file: str, name: str) -> None:
    assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)
