"""Each library stays in the rooms that may use it, and what is optional is imported late."""

import subprocess
import sys

import pytest

from tests.unit.source_imports import FILES, PACKAGES, ROOMS, imported, parse, room_of

OPTIONAL = (
    "aiohttp",
    "httptools",
    "yarl",
    "multidict",
    "pulsar",
    "llama_cpp",
    "uvloop",
    "mcp",
    "yaml",
    "httpx",
    "httpx2",
    "boto3",
    "botocore",
    "opentelemetry",
)
"""What only an extra brings, or another distribution."""
FORBIDDEN = {
    "tg_schema": {"aiohttp", "pulsar", "structlog", "openai", "llama_cpp", "click"},
    "tg_base": {"aiohttp", "openai", "llama_cpp", "jinja2", "click", "anthropic", "google", "httpx", "httpx2"},
    "tg_gateway": {"pulsar", "openai", "llama_cpp", "jinja2", "click"},
    "tg_picker": {"pulsar", "click", "boto3", "botocore", "llama_cpp", "jinja2"},
    "tg_llama": {"pulsar", "click", "aiohttp", "openai", "boto3", "botocore"},
    "tg_doors": {"pulsar", "openai", "llama_cpp", "jinja2", "click"},
    "tg_client": {"pulsar", "structlog", "openai", "llama_cpp", "jinja2", "click", "prometheus_client"},
    "tg_cli": {"pulsar", "structlog", "openai", "llama_cpp", "jinja2", "prometheus_client"},
    "tg_serve": {"pulsar", "structlog", "openai", "llama_cpp", "jinja2", "prometheus_client"},
    "tg_flow": {"pulsar", "click", "boto3", "botocore"},
    "tg_bedrock": {"pulsar", "click", "aiohttp", "jinja2"} | {"openai", "anthropic", "google", "llama_cpp"},
    "tg_vertexai": {"pulsar", "click", "aiohttp", "openai", "llama_cpp", "jinja2", "vertexai"},
}
ALLOWED = {
    "tg_base.bus.pulsar": {"pulsar"},
}
"""What keeps a library apart from the rest of its room, which imports it late or not at all: files and folders."""
SDKS = {"openai", "anthropic", "google", "ollama", "cohere", "mistralai", "boto3", "botocore", "llama_cpp"}
for without_providers in ("tg_schema", "tg_base", "tg_gateway", "tg_client", "tg_cli", "tg_serve"):
    FORBIDDEN[without_providers] |= SDKS


def teardown_module() -> None:
    """500,000 nodes of syntax trees would take each later look of the garbage collector a second."""
    parse.cache_clear()


def test_faces_import_nothing_optional() -> None:
    """What an extra brings is imported by who needs it, not by who comes near."""
    with_extras = {"tg_base.bus.pulsar"}
    faces = [
        face
        for face in sorted(PACKAGES)
        if face not in with_extras and room_of(face) in {"tg_schema", "tg_base", "tg_flow", "tg_bedrock"}
    ]
    code = f"import sys\nfor name in {OPTIONAL!r}: sys.modules[name] = None\nimport {', '.join(faces)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def test_tables_of_doors_are_read_without_a_gateway() -> None:
    """A processor reads them, since they are in its file too."""
    code = """import sys
sys.modules["tg_gateway"] = None
from importlib.metadata import entry_points
print(*[point.load().__name__ for point in entry_points(group="tokengrid.door_tables")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (done.stdout, done.stderr) == ("LmiConfig\n", "")


@pytest.mark.parametrize("room", ROOMS)
def test_libraries_stay_in_their_rooms(room: str) -> None:
    found = {
        (module, other)
        for module in FILES
        if room_of(module) == room
        for other in imported(module)
        if room_of(other) in FORBIDDEN[room]
    }
    assert {pair for pair in found if not _is_allowed(*pair)} == set()


def _is_allowed(module: str, library: str) -> bool:
    keepers = {keeper for keeper in ALLOWED if module == keeper or module.startswith(f"{keeper}.")}
    return any(room_of(library) in ALLOWED[keeper] for keeper in keepers)
