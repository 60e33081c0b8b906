"""Every file of shipped code -> what it imports, wherever in its text that stands: also for types only."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = {
    "tg_schema": "schema",
    "tg_base": "base",
    "tg_flow": "flow",
    "tg_bedrock": "bedrock",
    "tg_vertexai": "vertexai",
    "tg_gateway": "gateway",
    "tg_picker": "picker",
    "tg_llama": "llama",
    "tg_doors": "doors",
    "tg_client": "cli",
    "tg_cli": "cli",
    "tg_serve": "serve",
}
FILES = {
    ".".join((room, *path.relative_to(ROOT / folder / room).with_suffix("").parts)).removesuffix(".__init__"): path
    for room, folder in ROOMS.items()
    for path in (ROOT / folder / room).rglob("*.py")
}
PACKAGES = {module for module, path in FILES.items() if path.name == "__init__.py"}


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file. It is shared, so nobody changes it."""
    return ast.parse(path.read_text("utf-8"))


def tree_of(module: str) -> ast.Module:
    return parse(FILES[module])


@cache
def shown(package: str) -> frozenset[str]:
    """The names on a package's face."""
    for node in tree_of(package).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return frozenset(ast.literal_eval(node.value))
    return frozenset()


@cache
def imports(module: str) -> frozenset[tuple[str, str]]:
    """Every module that a module imports, anywhere in its text, and the name that it takes from it."""
    return frozenset(imports_in(tree_of(module), room_of(module)))


def imports_in(tree: ast.AST, room: str) -> Iterator[tuple[str, str]]:
    """The same for any syntax tree of a room's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide arrows"
            yield from (_taken(node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and set(".:") & set(node.value):
            module, _, name = node.value.partition(":")
            if module in FILES and (not name or room_of(module) == room):
                # A module that is imported by its name, or a class as "module:Class"; another room's may be absent.
                yield module, name


def _taken(module: str, name: str) -> tuple[str, str]:
    if f"{module}.{name}" in FILES and not (module in PACKAGES and name in shown(module)):
        return f"{module}.{name}", ""
    return module, name


def imported(module: str) -> set[str]:
    return {other for other, _ in imports(module)}


def room_of(module: str) -> str:
    return module.partition(".")[0]


def package_of(module: str) -> str:
    return module if module in PACKAGES else module.rpartition(".")[0]
