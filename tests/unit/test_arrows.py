"""The rule of arrows, held against every import of every file: also those in functions, and those for types only.

Arrows lead between rooms (distributions), between the packages of a room, and between modules; nowhere in a circle.
"""

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.unit.source_imports import (
    FILES,
    PACKAGES,
    ROOMS,
    imported,
    imports,
    package_of,
    parse,
    room_of,
    shown,
    tree_of,
)

MAY_IMPORT = {
    "tg_schema": set(),
    "tg_base": {"tg_schema"},
    "tg_flow": {"tg_schema", "tg_base"},
    "tg_bedrock": {"tg_schema", "tg_base"},
    "tg_vertexai": {"tg_schema", "tg_base"},
    "tg_gateway": {"tg_schema", "tg_base"},
    "tg_picker": {"tg_schema", "tg_base", "tg_flow", "tg_gateway"},
    "tg_llama": {"tg_schema", "tg_base"},
    "tg_doors": {"tg_schema", "tg_base", "tg_gateway"},
    "tg_client": {"tg_schema"},
    "tg_cli": {"tg_schema", "tg_client"},
    "tg_serve": {"tg_schema", "tg_cli"},
}
LAUNCHERS = frozenset({"tg_serve.launcher", "tg_serve.pick_process"})
"""The file that knows them all, and that of the endpoint picker, which is a process of its own."""
PACKAGES_MAY_IMPORT: dict[str, set[str]] = {
    "tg_base": set(),
    "tg_base.bus": {"tg_base.bus.core", "tg_base.runtime"},
    "tg_base.bus.core": {"tg_base.runtime"},
    "tg_base.bus.pulsar": {"tg_base.bus.core"},
    "tg_base.client": {"tg_base.bus", "tg_base.protocol", "tg_base.runtime", "tg_base.telemetry"},
    "tg_base.config": {"tg_base.bus", "tg_base.protocol", "tg_base.runtime"},
    "tg_base.llm": {
        "tg_base.llm.core",
        "tg_base.llm.http",
        "tg_base.runtime",
        "tg_base.server",
        "tg_base.telemetry",
    },
    "tg_base.llm.anthropic": {"tg_base.llm"},
    "tg_base.llm.core": set(),
    "tg_base.llm.gemini": {"tg_base.llm"},
    "tg_base.llm.http": {"tg_base.llm.core", "tg_base.runtime", "tg_base.telemetry"},
    "tg_base.protocol": {"tg_base.bus", "tg_base.runtime", "tg_base.telemetry"},
    "tg_base.runtime": set(),
    "tg_base.server": {
        "tg_base.bus",
        "tg_base.config",
        "tg_base.protocol",
        "tg_base.runtime",
        "tg_base.telemetry",
    },
    "tg_base.telemetry": {"tg_base.runtime"},
    "tg_bedrock": set(),
    "tg_cli": set(),
    "tg_client": {"tg_client.transport"},
    "tg_client.transport": set(),
    "tg_flow": set(),
    "tg_flow.agent": {"tg_flow.agent.core", "tg_flow.agent.tools"},
    "tg_flow.agent.core": {"tg_flow.agent.parsing", "tg_flow.prompt"},
    "tg_flow.agent.parsing": set(),
    "tg_flow.agent.tools": {"tg_flow.agent.core"},
    "tg_flow.prompt": set(),
    "tg_flow.providers": set(),
    "tg_flow.usage": set(),
    "tg_flow.providers.anthropic": set(),
    "tg_flow.providers.cohere": set(),
    "tg_flow.providers.gemini": set(),
    "tg_flow.providers.mistral": {"tg_flow.providers.openai"},
    "tg_flow.providers.ollama": set(),
    "tg_flow.providers.openai": set(),
    "tg_gateway": {
        "tg_gateway.access",
        "tg_gateway.dialects",
        "tg_gateway.http",
        "tg_gateway.jobs",
        "tg_gateway.openapi",
        "tg_gateway.parsing",
        "tg_gateway.relay",
        "tg_gateway.telemetry",
        "tg_gateway.websocket",
    },
    "tg_gateway.openapi": {
        "tg_gateway.dialects",
        "tg_gateway.http",
    },
    "tg_gateway.access": {"tg_gateway.telemetry"},
    "tg_gateway.dialects": set(),
    "tg_gateway.dialects.anthropic": {"tg_gateway.dialects"},
    "tg_gateway.dialects.embeddings": {"tg_gateway.dialects", "tg_gateway.dialects.chat"},
    "tg_gateway.dialects.ollama": {
        "tg_gateway.dialects",
        "tg_gateway.dialects.embeddings",
        "tg_gateway.dialects.chat",
    },
    "tg_gateway.dialects.native": {"tg_gateway.dialects"},
    "tg_gateway.dialects.chat": {"tg_gateway.dialects"},
    "tg_gateway.dialects.openai": {"tg_gateway.dialects", "tg_gateway.dialects.chat"},
    "tg_gateway.dialects.responses": {
        "tg_gateway.dialects",
        "tg_gateway.dialects.chat",
    },
    "tg_gateway.http": {
        "tg_gateway.access",
        "tg_gateway.dialects",
        "tg_gateway.parsing",
        "tg_gateway.jobs",
        "tg_gateway.relay",
        "tg_gateway.telemetry",
    },
    "tg_gateway.jobs": {
        "tg_gateway.access",
        "tg_gateway.dialects",
        "tg_gateway.relay",
        "tg_gateway.telemetry",
    },
    "tg_gateway.relay": {
        "tg_gateway.access",
        "tg_gateway.dialects",
        "tg_gateway.telemetry",
    },
    "tg_gateway.parsing": {"tg_gateway.dialects"},
    "tg_gateway.telemetry": set(),
    "tg_gateway.websocket": {
        "tg_gateway.access",
        "tg_gateway.dialects",
        "tg_gateway.http",
        "tg_gateway.jobs",
        "tg_gateway.relay",
        "tg_gateway.telemetry",
    },
    "tg_doors": set(),
    "tg_doors.lmi": {"tg_doors", "tg_doors.tgi"},
    "tg_doors.lmtp": set(),
    "tg_doors.mlc": set(),
    "tg_doors.tgi": set(),
    "tg_llama": {
        "tg_llama.chat",
        "tg_llama.core",
        "tg_llama.demo",
        "tg_llama.engine",
        "tg_llama.grammar",
        "tg_llama.lora",
        "tg_llama.native",
        "tg_llama.tools",
    },
    "tg_llama.chat": {"tg_llama.core", "tg_llama.tools"},
    "tg_llama.core": {"tg_llama.grammar", "tg_llama.models"},
    "tg_llama.demo": {"tg_llama.core", "tg_llama.grammar", "tg_llama.models"},
    "tg_llama.engine": {"tg_llama.core", "tg_llama.lora"},
    "tg_llama.grammar": set(),
    "tg_llama.lora": {"tg_llama.core"},
    "tg_llama.models": set(),
    "tg_llama.native": {"tg_llama.core", "tg_llama.grammar"},
    "tg_llama.tools": {"tg_llama.grammar"},
    "tg_picker": set(),
    "tg_picker.core": {
        "tg_picker.core.interface",
        "tg_picker.core.peers",
        "tg_picker.core.policies",
        "tg_picker.core.queue",
        "tg_picker.core.state",
    },
    "tg_picker.core.interface": set(),
    "tg_picker.core.peers": {"tg_picker.core.interface", "tg_picker.core.policies", "tg_picker.core.state"},
    "tg_picker.core.policies": {"tg_picker.core.interface", "tg_picker.core.state"},
    "tg_picker.core.queue": {"tg_picker.core.interface", "tg_picker.core.policies", "tg_picker.core.state"},
    "tg_picker.core.state": {"tg_picker.core.interface"},
    "tg_picker.extproc": {
        "tg_picker.core",
        "tg_picker.page",
        "tg_picker.picking",
        "tg_picker.pools",
        "tg_picker.status",
    },
    "tg_picker.page": {"tg_picker.status"},
    "tg_picker.picking": {"tg_picker.core", "tg_picker.pools", "tg_picker.status"},
    "tg_picker.pools": {"tg_picker.core"},
    "tg_picker.provider": {"tg_picker.core", "tg_picker.picking", "tg_picker.pools", "tg_picker.status"},
    "tg_picker.status": {"tg_picker.core", "tg_picker.pools"},
    "tg_schema": set(),
    "tg_serve": set(),
    "tg_vertexai": set(),
}
"""Within a room: which packages a package imports. A package is a folder; those below it are others."""
CLOSED = {"tg_base.bus", "tg_base.llm", "tg_flow.agent", "tg_picker.core"}
"""Packages whose inner packages nobody outside imports: their own face shows all."""
PAST_THE_FACE = {
    "tg_gateway.app": "tg_gateway's own face is empty, since it would run before every room inside",
    "tg_gateway.metrics_page": "as above; a process without a gateway imports this page alone",
    "tg_base.llm.anthropic": "for the hosts of Claude; another author's provider has no use for it",
    "tg_base.llm.gemini": "as above, for the hosts of Gemini",
    "tg_picker.pools.catalogue_builder": "imports PyYAML, which a program that reads no files has no use for",
    "tg_picker.pools.pool_watcher": "as above",
    "tg_picker.pools.followed_pools": "as above",
    "tg_picker.pools.placement_exchange": "as above",
    "tg_picker.pools.kv_subscriber": "needs pyzmq, as above",
    "tg_picker.pools.adapter_loader": "needs the HTTP answers of tg_base.llm, which nothing else of the face does",
    "tg_picker.pools.scraper": "needs aiohttp, as above, and the HTTP connections of tg_base.llm",
    "tg_picker.extproc.picker_process": "needs gRPC, as above",
    "tg_cli.entry": "tg_cli's own face is empty, since it would run before Ctrl-C is handled",
    "tg_cli.endings": "as above",
    "tg_cli.start": "as above",
    "tg_client.agent_event": "for the commands; the SDK's face is a promise to programs",
    "tg_client.flow": "as above",
}
"""Modules that are no part of their package's face, and why; they are imported by their own names."""
LONGEST_FACE_LINES = 40


def face_for(importer: str, target: str) -> str | None:
    """The face through which a module sees another one; None: they live in one package."""
    own, home = package_of(importer), package_of(target)
    parts = target.split(".")
    for length in range(1, len(parts) + 1):
        outer = ".".join(parts[:length])
        if outer in CLOSED and own != outer and not own.startswith(f"{outer}."):
            return outer
    return None if own == home else home


def teardown_module() -> None:
    """500,000 nodes of syntax trees would take each later look of the garbage collector a second."""
    parse.cache_clear()


def test_all_rooms_are_there() -> None:
    assert {room_of(module) for module in FILES} == set(ROOMS)
    assert "tg_base.server" in imported("tg_flow.agent.agent_kind")
    assert "tg_flow.providers.openai.client" in imported("tg_flow.providers.openai.provider")


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_between_rooms(room: str) -> None:
    arrows = {
        (module, other)
        for module in FILES
        if room_of(module) == room and module not in LAUNCHERS
        for other in imported(module)
        if room_of(other) in ROOMS and room_of(other) != room
    }
    assert {arrow for arrow in arrows if room_of(arrow[1]) not in MAY_IMPORT[room]} == set()


def arrows_of(package: str) -> set[str]:
    """The packages that a package imports."""
    inside = [module for module in FILES if package_of(module) == package]
    others = {package_of(other) for module in inside for other in imported(module) if other in FILES}
    return others - {package}


def test_every_package_has_its_row() -> None:
    assert set(PACKAGES_MAY_IMPORT) == {package_of(module) for module in FILES} == PACKAGES


@pytest.mark.parametrize("package", PACKAGES_MAY_IMPORT)
def test_arrows_between_packages(package: str) -> None:
    """Exactly these: an arrow that is gone leaves the table."""
    assert {other for other in arrows_of(package) if room_of(other) == room_of(package)} == PACKAGES_MAY_IMPORT[package]


def test_no_circle_of_packages() -> None:
    check_no_circles({package: arrows_of(package) for package in PACKAGES})


def test_no_circles() -> None:
    check_no_circles({module: {other for other in imported(module) if other in FILES} - {module} for module in FILES})


def check_no_circles(graph: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def imports_past_faces(module: str) -> set[tuple[str, str]]:
    """What a module imports of another package that is neither that package's face nor shown there."""
    past = set()
    for other, name in imports(module):
        face = face_for(module, other) if other in FILES else None
        if face is None or other in PAST_THE_FACE:
            continue
        if room_of(other) == "tg_schema":  # the vocabulary: each of its files may be imported for what its face lacks
            allowed = other == face or name not in shown(face)
        else:
            allowed = other == face and (not name or name in shown(face))
        if not allowed:
            past.add((other, name))
    return past


def test_nobody_imports_past_a_face() -> None:
    assert {module: past for module in FILES if (past := imports_past_faces(module))} == {}


def test_inner_code_imports_the_defining_module_and_not_its_own_face() -> None:
    """But for a module that is itself a name of the package."""
    assert [module for module in FILES if module not in PACKAGES and package_of(module) in imported(module)] == []


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_face_is_short_and_only_shows(package: str) -> None:
    body = tree_of(package).body
    assert FILES[package].read_text("utf-8").count("\n") <= LONGEST_FACE_LINES
    assert ast.get_docstring(tree_of(package))
    assert all(isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign) for node in body)
    assert {
        name for node in body if isinstance(node, ast.ImportFrom) for name in (each.name for each in node.names)
    } == (shown(package))


def test_a_file_says_what_it_is() -> None:
    silent = [name for name, path in FILES.items() if path.stat().st_size and not ast.get_docstring(tree_of(name))]
    assert silent == [], "the first line tells the module's place in the flow"
