"""The parts that are installed: what each declares is what it imports, and all say the same about themselves."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WORKSPACE: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MEMBERS: tuple[str, ...] = tuple(WORKSPACE["tool"]["uv"]["workspace"]["members"])
EXTRAS = {
    "tg_base.bus.pulsar": "pulsar",
    "tg_base.llm.http": "http",
    "tg_base.llm.gemini": "http",
    "tg_base.server.process": "uvloop",
    "tg_base.telemetry.otlp": "traces",
    "tg_cli.top_screen": "top",
    "tg_flow.agent.tools.http_tool": "http",
    "tg_flow.agent.tools.mcp_session": "mcp",
    "tg_flow.agent.tools.mcp_tool": "mcp",
    "tg_flow.providers.anthropic": "anthropic",
    "tg_flow.providers.cohere": "cohere",
    "tg_flow.providers.gemini": "google-ai-studio",
    "tg_flow.providers.mistral": "mistral",
    "tg_flow.providers.ollama": "ollama",
    "tg_flow.providers.openai": "openai",
    "tg_flow.usage.known_prices": "prices",
    "tg_flow.usage.postgres_database": "postgres",
    "tg_llama.core.hub": "cpp",
    "tg_llama.native": "cpp",
}
"""Modules and packages that may import what an extra of their distribution brings; all others may not."""
NAMES = {
    "google.auth": "google-auth",
    "google.genai": "google-genai",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "_pulsar": "pulsar-client",
    "llama_cpp": "llama-cpp-python",
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry.trace": "opentelemetry-api",
    "pulsar": "pulsar-client",
    "tg_client": "tokengrid-cli",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Imports that are not called as their distribution."""
INSIDE = {
    "base/tg_base/bus/pulsar/consumer.py": {"pulsar-client"},
    "bedrock/tg_bedrock/client.py": {"botocore", "boto3"},
    "flow/tg_flow/providers/ollama/client.py": {"ollama"},
    "gateway/tg_gateway/http/body_reader.py": {"aiohttp"},
}
"""Files that use what a library does not promise, and its distributions: the next minor version may have none of it."""
TYPES_ONLY = {"types-boto3-bedrock", "types-boto3-bedrock-runtime"}
"""Imported for the type checker alone; the development tools have them."""
ALL = {
    "tokengrid-base[pulsar,traces]",
    "tokengrid-bedrock",
    "tokengrid-doors",
    "tokengrid-llama[cpp]",
    "tokengrid-picker",
    "tokengrid-vertexai",
}
"""What `tokengrid-serve[all]` has beside every extra of tokengrid-flow."""
BUILT_IN = {"serve": {"tokengrid-llama"}}
"""What a distribution requires for its entry points: what runs without a configuration."""
DEVELOPMENT = {"mypy", "pytest", "pytest-asyncio", "ruff", "hypothesis", "types-boto3"}
NOT_FOR_A_DEMO = {
    "llama-cpp-python",
    "huggingface-hub",
    "pulsar-client",
    "boto3",
    "google-genai",
    "openai",
    "anthropic",
    "mcp",
} | DEVELOPMENT


@cache
def project(member: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / member / "pyproject.toml").read_text("utf-8"))
    return table


def packages(member: str) -> list[str]:
    names: list[str] = project(member)["tool"]["uv"]["build-backend"]["module-name"]
    return names


def name_of(requirement: str) -> str:
    """The distribution, without extras, version and marker."""
    return re.split(r"[\[><=;]", requirement, maxsplit=1)[0].strip()


def distribution_of(module: str) -> str | None:
    """Where an import comes from; None: from Python itself."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    known = NAMES.get(".".join(module.split(".")[:2])) or NAMES.get(top)
    return known or re.sub(r"^tg-", "tokengrid-", top.replace("_", "-"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            whole = node.module or ""
            yield from ((f"{whole}.{alias.name}" if whole == "google" else whole) for alias in node.names)


def extra_of(module: str) -> str:
    """The extra whose packages a module may import; "" = none."""
    return next((extra for place, extra in EXTRAS.items() if f"{module}.".startswith(f"{place}.")), "")


@cache
def imports(member: str) -> dict[str, set[str]]:
    """Extra, or "" -> the distributions that its modules import; the member's own one is none of them."""
    found: dict[str, set[str]] = defaultdict(set)
    for package in packages(member):
        for path in (ROOT / member / package).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT / member).with_suffix("").parts).removesuffix(".__init__")
            found[extra_of(module)] |= {name for each in imported(path) if (name := distribution_of(each)) is not None}
    return {extra: names - TYPES_ONLY - {f"tokengrid-{member}"} for extra, names in found.items()}


def required(member: str) -> set[str]:
    return {name_of(each) for each in project(member)["project"]["dependencies"]}


def optional(member: str) -> dict[str, list[str]]:
    extras: dict[str, list[str]] = project(member)["project"].get("optional-dependencies", {})
    return extras


@pytest.mark.parametrize("member", MEMBERS)
def test_what_is_required_is_what_is_imported(member: str) -> None:
    assert required(member) == imports(member).get("", set()) | BUILT_IN.get(member, set())


@pytest.mark.parametrize(("member", "extra"), [(m, e) for m in MEMBERS if m != "serve" for e in optional(m)])
def test_what_an_extra_brings_is_what_its_modules_import(member: str, extra: str) -> None:
    """Beside what is required anyway; an extra of our own, such as `tokengrid-base[http]`, is no import of its own."""
    brings = {name_of(each) for each in optional(member)[extra] if not each.startswith("tokengrid-")}
    assert brings == imports(member)[extra] - required(member)


def test_all_is_everything() -> None:
    found = {each.partition("==")[0] for each in optional("serve")["all"]}
    flow = next(each for each in found if each.startswith("tokengrid-flow["))
    assert set(flow.removeprefix("tokengrid-flow[").removesuffix("]").split(",")) == set(optional("flow"))
    assert found - {flow} == ALL


def requirements(member: str) -> list[str]:
    return [*project(member)["project"]["dependencies"], *(each for row in optional(member).values() for each in row)]


@pytest.mark.parametrize("member", MEMBERS)
def test_a_library_whose_inside_is_used_has_an_upper_bound(member: str) -> None:
    known = set().union(*INSIDE.values())
    used = [each for each in requirements(member) if name_of(each) in known]
    assert [each for each in used if "<" not in each and "==" not in each] == []


def test_whose_inside_is_used_is_known() -> None:
    files = (
        path for member in MEMBERS for package in packages(member) for path in (ROOT / member / package).rglob("*.py")
    )
    marked = {str(path.relative_to(ROOT)) for path in files if "noqa: SLF001" in path.read_text("utf-8")}
    assert marked <= INSIDE.keys()
    assert all((ROOT / path).exists() for path in INSIDE)


@pytest.mark.parametrize("member", MEMBERS)
def test_the_parts_fit_only_each_other(member: str) -> None:
    ours = [each for each in requirements(member) if each.startswith("tokengrid-")]
    assert all(each.endswith(f"=={WORKSPACE['project']['version']}") for each in ours)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_part_says_what_it_is(member: str) -> None:
    about, first = project(member)["project"], project(MEMBERS[0])["project"]
    same = {"version", "license", "license-files", "authors", "classifiers", "requires-python", "urls", "readme"}
    assert {key: about[key] for key in same} == {key: first[key] for key in same}
    assert about["name"] == f"tokengrid-{member}"
    assert version(about["name"]) == about["version"] == WORKSPACE["project"]["version"], "run: make .venv/ready"
    readme = (ROOT / member / "README.md").read_text("utf-8")
    assert readme.startswith(f"# {about['name']}\n")
    assert max(map(len, readme.splitlines())) <= 120
    assert [extra for extra in optional(member) if f"[{extra}]" not in readme and f"`{extra}`" not in readme] == []
    assert (ROOT / member / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_changelog_and_image_have_the_same_version() -> None:
    """RELEASING.md: the newest section below `Unreleased`, and the image's label."""
    changelog, dockerfile = ((ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "Dockerfile"))
    sections = re.findall(r"^## \[([^]]+)\](?: - \d{4}-\d\d-\d\d)?$", changelog, re.MULTILINE)
    labels = re.findall(r"image\.version=(\S+)", dockerfile)
    assert sections[:2] == ["Unreleased", WORKSPACE["project"]["version"]]
    assert labels == [WORKSPACE["project"]["version"]]


@pytest.mark.parametrize("member", MEMBERS)
def test_types_are_told_once_for_each_top_package(member: str) -> None:
    """PEP 561: the marker is for the package and all below it."""
    markers = {path.relative_to(ROOT / member).as_posix() for path in (ROOT / member).rglob("py.typed")}
    assert markers == {f"{package}/py.typed" for package in packages(member)}


def locked(lock: Path) -> dict[str, frozenset[str]]:
    """Name and version -> the hashes of its files."""
    parts = re.split(r"^(?=\w)", lock.read_text("utf-8"), flags=re.MULTILINE)
    return {part.split()[0]: frozenset(re.findall(r"--hash=(sha256:[0-9a-f]{64})\b", part)) for part in parts if part}


def test_smaller_locks_hold_what_the_whole_one_holds() -> None:
    whole, server, demo = (locked(ROOT / f"requirements{part}.lock") for part in ("", "-server", "-demo"))
    assert demo.items() < server.items() < whole.items()
    assert not {name_of(each) for each in server} & DEVELOPMENT
    assert {"numpy", "llguidance"} < {name_of(each) for each in demo}
    assert not {name_of(each) for each in demo} & NOT_FOR_A_DEMO


@pytest.mark.parametrize("lock", sorted(ROOT.glob("requirements*.lock")), ids=lambda path: path.name)
def test_a_lock_has_a_hash_for_everything_and_no_address(lock: Path) -> None:
    assert "://" not in lock.read_text("utf-8")
    assert all(locked(lock).values())


@pytest.mark.parametrize(
    "script",
    [
        *("tg-chat", "tg-invoke-agent", "tg-invoke-llm", "tg-invoke-prompt", "tg-lmtp", "tg-models"),
        *("tg-pick", "tg-replay", "tg-serve", "tg-serve-model", "tg-top"),
    ],
)
def test_every_command_tells_its_version(script: str) -> None:
    command = Path(sys.executable).parent / script
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{script} {WORKSPACE['project']['version']}\n"


def test_every_script_is_in_the_test_above() -> None:
    scripts = {name for member in MEMBERS for name in project(member)["project"].get("scripts", {})}
    assert scripts == {
        "tg-chat",
        "tg-invoke-agent",
        "tg-invoke-llm",
        "tg-invoke-prompt",
        "tg-lmtp",
        "tg-models",
        "tg-pick",
        "tg-replay",
        "tg-serve",
        "tg-serve-model",
        "tg-top",
        "tg-usage",
    }


def test_make_compiles_what_pip_is_told_to_compile() -> None:
    """The provider names the same file, in a command that tests/install reads."""
    file = ROOT / "llama" / "tg_llama" / "native" / "library.cmake"
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"-DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/{file.relative_to(ROOT)}\n" in makefile
    assert "\nset(LLAMA_BUILD_COMMON OFF)\n" in file.read_text("utf-8")


def test_no_two_distributions_own_one_file() -> None:
    """The one that is installed last would win, and which one that is differs from installation to installation."""
    owners: dict[str, set[str | None]] = {}
    for distribution in distributions():
        for file in distribution.files or ():
            if file.hash is not None and file.parts[0] != "..":
                owners.setdefault(file.as_posix(), set()).add(file.hash.value)
    assert len(owners) > 1000
    assert {file for file, contents in owners.items() if len(contents) > 1} == set()
