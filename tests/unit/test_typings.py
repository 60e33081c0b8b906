"""typings/ says of the broker's client, and of xdist, nothing that the installed one does not have."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TYPINGS = Path(__file__).parents[2] / "typings"
STUBS = {
    "pulsar": "pulsar/__init__.pyi",
    "pulsar.schema": "pulsar/schema.pyi",
    "_pulsar": "_pulsar.pyi",
    "xdist.remote": "xdist/remote.pyi",
    "xdist.scheduler": "xdist/scheduler.pyi",
}
SET_LATER = {"_producer", "_consumer", "_reader", "_fields"}
"""Attributes of an instance or a subclass, which the class itself does not show."""
Written = ast.ClassDef | ast.FunctionDef | ast.AnnAssign | ast.ImportFrom


def named(body: list[ast.stmt], place: str) -> Iterator[tuple[str, Written]]:
    """Every class, function, attribute and import of a stub, as `Client.subscribe`."""
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{place}{name}", node
                yield from named(node.body if isinstance(node, ast.ClassDef) else [], f"{place}{name}.")
            case ast.ImportFrom(module="_pulsar", names=names):
                yield from ((alias.name, node) for alias in names)


def entries() -> Iterator[Any]:
    for module, file in STUBS.items():
        for name, node in named(ast.parse((TYPINGS / file).read_text("utf-8")).body, ""):
            if name.rpartition(".")[2] not in SET_LATER:
                yield pytest.param(module, name, node, id=f"{module}.{name}")


def difference(module: str, name: str, node: Written) -> str | None:
    """What the installed package lacks of one entry."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            return f"{module} has no {name}"
        found = getattr(found, part)
    if isinstance(node, ast.ClassDef):
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
        missing = bases - {base.__name__ for base in found.__mro__}
    elif isinstance(node, ast.FunctionDef) and inspect.isfunction(found):
        missing = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)} - set(
            inspect.signature(found).parameters
        )
    else:
        # The compiled part does not tell the names of its parameters.
        missing = set()
    return f"{name} lacks {sorted(missing)}" if missing else None


@pytest.mark.parametrize(("module", "name", "node"), [*entries()])
def test_the_installed_package_has_it(module: str, name: str, node: Written) -> None:
    assert difference(module, name, node) is None


@pytest.mark.parametrize(
    "line",
    [
        "class Nobody: ...",
        "class Client:\n    def sing(self) -> None: ...",
        "class Client:\n    def close(self, loudly: bool) -> None: ...",
        "class Client:\n    voice: str",
        "class Client(Producer): ...",
    ],
)
def test_what_it_does_not_have_is_told(line: str) -> None:
    assert [difference("pulsar", *entry) for entry in named(ast.parse(line).body, "")][-1] is not None
