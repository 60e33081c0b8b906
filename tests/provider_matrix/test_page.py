"""No provider without its matrix, its distribution and its place in the documents."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest

from tests.flow.known_providers import PLACES, PROVIDERS, REQUIREMENTS
from tests.provider_matrix.case import cases
from tests.provider_matrix.cell import expected
from tests.provider_matrix.table import PAGE, tables, written
from tg_flow.providers.registry import load_provider

ROOT = Path(__file__).parents[2]


def test_every_provider_has_its_case() -> None:
    assert [case.provider for case in cases()] == list(PROVIDERS)


def test_the_committed_tables_are_what_the_cases_announce() -> None:
    page = PAGE.read_text()
    assert page == written(page, tables(cases(), expected)), "run: python -m tests.provider_matrix --write"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_has_its_row_in_the_page(provider: str) -> None:
    tables = (line for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    rows = [line for line in tables if f"`{provider}`" in line.partition(" | ")[0]]
    assert len(rows) == 3
    assert f"`{REQUIREMENTS[provider]}`" in rows[0]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_option_is_documented(provider: str) -> None:
    pages = (PAGE, PAGE.with_name("configuration.md"), ROOT / "picker" / "docs" / "instances.md")
    documents = "".join(page.read_text() for page in pages)
    for field in load_provider(provider).kind.Options.__struct_fields__:
        assert f"`{field}`" in documents or f"`{field}." in documents, field


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_provider_needs_can_be_installed(provider: str) -> None:
    """Its extra exists, or the distribution that it comes with."""
    match = re.fullmatch(r"(tokengrid-[a-z]+)(?:\[([a-z-]+)\])?", REQUIREMENTS[provider])
    assert match is not None
    distribution, extra = match.groups()
    assert requires(distribution)
    project = tomllib.loads((ROOT / distribution.removeprefix("tokengrid-") / "pyproject.toml").read_text())["project"]
    assert project["name"] == distribution
    assert extra is None or extra in project["optional-dependencies"]
    brought = f"tokengrid-{extra}" if distribution == "tokengrid-serve" else distribution
    assert f"{PLACES[provider]}.".startswith(f"tg_{brought.removeprefix('tokengrid-')}.")
