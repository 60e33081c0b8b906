"""The limits that the figures of `make figures` keep today; a change may tighten them, not loosen them."""

from pathlib import Path

import pytest

from scripts import figures, graph
from scripts.source import Source
from scripts.walk import walk
from tests.unit.source_imports import parse

MAX_LARGE_FILE_LINES = 225
"""One in ten may be larger: a file has one subject, and no wall at a number."""
MAX_MEDIAN_FILE_LINES = 100
MAX_LARGE_FUNCTION_LINES = 16
"""One in ten may be larger."""
MAX_BROAD_EXCEPTS = 5
MIN_COMMENTS_PER_100_LINES = 1.9
MAX_REQUEST_CALLS, MAX_REQUEST_CHANGES = 127, 62
MAX_CHUNK_CALLS, MAX_CHUNK_CHANGES = 43, 21


def teardown_module() -> None:
    """500,000 nodes of syntax trees would take each later look of the garbage collector a second."""
    parse.cache_clear()
    figures.shipped.cache_clear()


def test_files_and_functions_of_shipped_code_are_small() -> None:
    shipped = figures.shipped()[0]
    lines = sorted(source.lines for source in shipped.sources)
    assert lines[9 * len(lines) // 10] <= MAX_LARGE_FILE_LINES
    assert lines[len(lines) // 2] <= MAX_MEDIAN_FILE_LINES
    functions = sorted(function.lines for function in shipped.functions)
    assert functions[9 * len(functions) // 10] <= MAX_LARGE_FUNCTION_LINES
    assert all(function.annotated for function in shipped.functions)


def test_no_circle_and_no_arrow_up() -> None:
    everything, run_time = graph.all_imports(), graph.run_time_imports()
    assert [graph.circles(each) for each in (everything, run_time, graph.packages_of(everything))] == [[], [], []]
    assert graph.arrows_up() == []


def test_few_places_catch_everything() -> None:
    assert len(figures.broad_excepts()) <= MAX_BROAD_EXCEPTS, figures.broad_excepts()


def test_comments_say_why_where_the_code_surprises() -> None:
    shipped = figures.shipped()[0]
    assert 100 * shipped.total(lambda source: source.comments) >= MIN_COMMENTS_PER_100_LINES * shipped.code_lines


async def test_a_request_and_a_chunk_make_few_calls() -> None:
    request, chunk = await walk()
    assert (request.files[0], request.files[-1]) == ("tg_gateway.http_connections", "tg_base.llm.guard")
    assert chunk.files[0] == "tg_base.llm.guard"
    assert len(request.calls) <= MAX_REQUEST_CALLS, request.calls
    assert request.changes <= MAX_REQUEST_CHANGES, request.calls
    assert len(chunk.calls) <= MAX_CHUNK_CALLS, chunk.calls
    assert chunk.changes <= MAX_CHUNK_CHANGES, chunk.calls


TEXT = '''
"""A module."""

import os  # noqa: F401 - for a tool

LIMIT = 1
"""Describes the name above: no code."""


class Shown:
    def method(self, given) -> int:
        """Say something.

        And more.
        """
        # Why.
        try:
            return given
        except (ValueError, Exception):
            return 0

    def _hidden(self) -> None: ...
'''


def test_what_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "shown.py"
    path.write_text(TEXT, "utf-8")
    source = Source(path)
    assert (source.lines, source.code_lines, source.comments) == (22, 9, 1)
    assert [(function.lines, function.annotated) for function in source.functions] == [(6, False), (1, True)]
    assert source.documented == (True, False, True)
    assert source.broad_excepts == (19,)
    assert source.body_lines == {17, 18, 19, 20, 22}


@pytest.mark.parametrize(
    ("edges", "found"),
    [({"a": {"b"}, "b": {"a"}, "c": {"a"}}, [{"a", "b"}]), ({"a": {"b"}, "b": {"c"}, "c": set()}, [])],
)
def test_circles(edges: dict[str, set[str]], found: list[set[str]]) -> None:
    assert graph.circles(edges) == found


def test_floors() -> None:
    assert graph.floors({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == 3
