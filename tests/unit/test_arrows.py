"""The rule of arrows, held against every import of every file: also those in functions, and those for types only."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    "tg_schema": "schema",
    "tg_base": "base",
    "tg_flow": "flow",
    "tg_bedrock": "bedrock",
    "tg_vertexai": "vertexai",
    "tg_gateway": "gateway",
    "tg_client": "cli",
    "tg_cli": "cli",
}
MAY_IMPORT = {
    "tg_schema": set(),
    "tg_base": {"tg_schema"},
    "tg_flow": {"tg_schema", "tg_base"},
    "tg_bedrock": {"tg_schema", "tg_base"},
    "tg_vertexai": {"tg_schema", "tg_base"},
    "tg_gateway": {"tg_schema", "tg_base"},
    "tg_client": {"tg_schema"},
    "tg_cli": {"tg_schema", "tg_client"},
}
LAUNCHER = "tg_cli.launcher"
"""The single file that knows them all."""
FORBIDDEN = {
    "tg_schema": {"aiohttp", "pulsar", "structlog", "openai", "llama_cpp", "click"},
    "tg_base": {"aiohttp", "openai", "llama_cpp", "jinja2", "click", "anthropic", "google", "httpx", "httpx2"},
    "tg_gateway": {"pulsar", "openai", "llama_cpp", "jinja2", "click"},
    "tg_client": {"pulsar", "structlog", "openai", "llama_cpp", "jinja2", "click", "prometheus_client"},
    "tg_cli": {"pulsar", "structlog", "openai", "llama_cpp", "jinja2", "prometheus_client"},
    "tg_flow": {"pulsar", "click", "boto3", "botocore"},
    "tg_bedrock": {"pulsar", "click", "aiohttp", "jinja2"} | {"openai", "anthropic", "google", "llama_cpp"},
    "tg_vertexai": {"pulsar", "click", "aiohttp", "openai", "llama_cpp", "jinja2", "vertexai"},
}
SDKS = {"openai", "anthropic", "google", "ollama", "cohere", "mistralai", "boto3", "botocore", "llama_cpp"}
for without_providers in ("tg_schema", "tg_base", "tg_gateway", "tg_client", "tg_cli"):
    FORBIDDEN[without_providers] |= SDKS
FILES = {
    ".".join((room, *path.relative_to(ROOT / folder / room).with_suffix("").parts)).removesuffix(".__init__"): path
    for room, folder in ROOMS.items()
    for path in (ROOT / folder / room).rglob("*.py")
}


@cache
def imported(module: str) -> frozenset[str]:
    """Every module that a module imports, anywhere in its text."""
    return frozenset(_imported(ast.parse(FILES[module].read_text("utf-8"))))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide arrows"
            module = node.module or ""
            yield from (
                f"{module}.{alias.name}" if f"{module}.{alias.name}" in FILES else module for alias in node.names
            )
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value and node.value in FILES
        ):
            yield node.value  # a module that is imported by its name


def room_of(module: str) -> str:
    return module.partition(".")[0]


def test_all_rooms_are_there() -> None:
    assert {room_of(module) for module in FILES} == set(ROOMS)
    assert "tg_base.processor" in imported("tg_flow.processors")
    assert "tg_flow.providers.openai_connection" in imported("tg_flow.providers.openai_compatible")


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_between_rooms(room: str) -> None:
    arrows = {
        (module, other)
        for module in FILES
        if room_of(module) == room and module != LAUNCHER
        for other in imported(module)
        if room_of(other) in ROOMS and room_of(other) != room
    }
    assert {arrow for arrow in arrows if room_of(arrow[1]) not in MAY_IMPORT[room]} == set()


@pytest.mark.parametrize("room", ROOMS)
def test_libraries_stay_in_their_rooms(room: str) -> None:
    found = {
        (module, other)
        for module in FILES
        if room_of(module) == room
        for other in imported(module)
        if room_of(other) in FORBIDDEN[room]
    }
    assert {pair for pair in found if pair[0] != "tg_base.bus.pulsar" or room_of(pair[1]) != "pulsar"} == set()


def test_no_circles() -> None:
    graph = {module: {other for other in imported(module) if other in FILES} - {module} for module in FILES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_inner_code_imports_the_defining_module_and_not_the_face() -> None:
    faces = {"tg_client", "tg_base", "tg_flow", "tg_gateway", "tg_cli"}
    assert {(module, other) for module in FILES for other in imported(module) if other in faces} == set()


@pytest.mark.parametrize("module", FILES)
def test_a_file_is_small_and_says_what_it_is(module: str) -> None:
    text = FILES[module].read_text("utf-8")
    assert text.count("\n") <= 400
    assert not text or ast.get_docstring(ast.parse(text)), "the first line tells the module's place in the flow"
