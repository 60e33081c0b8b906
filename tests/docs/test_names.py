"""README.md, ARCHITECTURE.md and docs/: each name in backticks exists, links lead somewhere, lines are short."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from scripts.map import members
from tests.docs.page import PAGES, ROOT

OURS = members()
HERE = Path(__file__).parent
MAX_LINE = 120
FILE = re.compile(r"[\w.*<>{},/-]+\.(?:py|toml|md|yaml|lock|json)")
WORD = re.compile(r"[A-Za-z_]\w*")
NAME = re.compile(r"[A-Z][a-z]+[A-Za-z]*|[a-z]+(?:_[a-z]+)+|[A-Z]+(?:_[A-Z]+)+")
"""CamelCase, snake_case, CONSTANT_CASE."""
FOREIGN = {
    "DGGML_CUDA",
    "InferenceSet",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "PYTHONMALLOC",
    "background_thread",
    "chatLanguageModels.json",
    "dirty_decay_ms",
    "ItsOptions",
    "ListFoundationModels",
    "NAME_TOOL",
    "chat_template_kwargs",
    "circuit_breakers",
    "enable_thinking",
    "flush_async",
    "forward_rules",
    "muzzy_decay_ms",
    "per_connection_buffer_limit_bytes",
    "process_open_fds",
    "process_resident_memory_bytes",
    "producer_exception",
    "proxy_buffering",
    "pulsar_subscription_back_log",
    "response_trailer_mode",
}
"""What brokers, proxies, providers and the libraries of others have, and what stands for a name of the reader's."""
_FENCES = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`]+)`")
_WRITTEN = re.compile(r"into (?:a file )?`([\w.]+)`")
"""The files that a reader is told to write."""
_LINK = re.compile(r"\]\(([^)]+)\)")


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCES.sub("", page.read_text("utf-8"))


@cache
def words_of_the_code() -> frozenset[str]:
    """Every identifier, and every word of a text that is not a docstring, in what we ship, test and measure."""
    words: set[str] = set()
    for folder in (*OURS, "tests", "bench", "examples"):
        for file in (ROOT / folder).rglob("*.py"):
            if HERE in file.parents:
                continue
            words.add(file.stem)
            words |= set(_words(ast.parse(file.read_text("utf-8"))))
    installed = (*ROOT.glob("deploy/systemd/*.service"), *ROOT.glob("deploy/helm/*/*.yaml"))
    for file in (*ROOT.glob("*/*/**/*.toml"), *installed, ROOT / "Makefile", ROOT / "docker-compose.yaml"):
        words |= set(WORD.findall(file.read_text("utf-8")))
    return frozenset(words)


def _words(tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                node.value = ast.Constant(None)
            case ast.Constant(value=str() as text):
                found += WORD.findall(text)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.alias(name=name):
                found.append(name)
            case ast.keyword(arg=str() as name):
                found.append(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.append(name)
    return found


@cache
def files() -> tuple[str, ...]:
    folders = (*OURS, "tests", "bench", "examples", "deploy", "docs", "scripts", "models")
    return tuple(str(file.relative_to(ROOT)) for folder in folders for file in (ROOT / folder).rglob("*.*"))


def is_a_file(name: str) -> bool:
    """Whether the repository has it: from its root, or at the end of a path."""
    if set("*<{") & set(name) or (ROOT / name).exists():
        return True
    return any(file == name or file.endswith("/" + name) for file in files())


def unknown_names(span: str) -> list[str]:
    """What of a span in backticks is a name that the code does not have."""
    if FILE.fullmatch(span):
        return [] if is_a_file(span) or span in FOREIGN else [span]
    names = [word for word in WORD.findall(span) if NAME.fullmatch(word)]
    return [name for name in names if name not in FOREIGN and name not in words_of_the_code()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_has_every_name(page: Path) -> None:
    spans = sorted(set(_SPAN.findall(prose(page).replace("``", ""))))
    written = set(_WRITTEN.findall(prose(page)))
    shown = written | set(WORD.findall("".join(_FENCES.findall(page.read_text("utf-8")))))
    assert [name for span in spans for name in unknown_names(span) if name not in shown] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if path.startswith("http"):
            continue
        target = (page.parent / path) if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """What GitHub calls a page's headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_are_short(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert [line for line in lines if len(line) > MAX_LINE and not line.startswith("|")] == []


def test_contributors_find_every_folder_of_tests() -> None:
    listed = set(re.findall(r"^\| `tests/(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE))
    assert listed == {file.parent.name for file in (ROOT / "tests").glob("*/*.py")}


def test_a_name_that_is_not_there_is_found() -> None:
    assert unknown_names("PresenceTable.bury_all") == ["PresenceTable", "bury_all"]
    assert unknown_names("tests/unit/test_nothing.py") == ["tests/unit/test_nothing.py"]
    assert unknown_names("LlmService") == []
