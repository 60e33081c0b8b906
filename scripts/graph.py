"""Imports -> circles, floors and arrows up, of modules and of packages."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from typing import TypeAlias

from tests.unit.source_imports import FILES, imported, imports_in, package_of, room_of, tree_of
from tests.unit.test_arrows import LAUNCHERS, MAY_IMPORT, PACKAGES_MAY_IMPORT

Graph: TypeAlias = Mapping[str, set[str]]


def _at_run_time(node: ast.AST) -> Iterator[ast.stmt]:
    """The imports that run when a module is imported: those outside functions that are not for types only."""
    for inner in ast.iter_child_nodes(node):
        match inner:
            case ast.Import() | ast.ImportFrom():
                yield inner
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.expr():
                pass
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                pass
            case _:
                yield from _at_run_time(inner)


@cache
def all_imports() -> Graph:
    """Module -> the modules of ours that it imports, anywhere in its text."""
    return {module: {other for other in imported(module) if other in FILES} - {module} for module in FILES}


@cache
def run_time_imports() -> Graph:
    """Module -> the modules of ours that are imported with it."""
    return {module: _run_time(module) & FILES.keys() - {module} for module in FILES}


def _run_time(module: str) -> set[str]:
    body = list(_at_run_time(tree_of(module)))
    return {other for other, _ in imports_in(ast.Module(body, []), room_of(module))}


def packages_of(graph: Graph) -> Graph:
    """The same between packages: folder -> the folders that it imports."""
    packages: dict[str, set[str]] = {}
    for module, others in graph.items():
        package = package_of(module)
        packages.setdefault(package, set()).update({package_of(other) for other in others} - {package})
    return packages


def circles(graph: Graph) -> list[set[str]]:
    """The largest sets in which each reaches each other one."""
    reach = {node: _reachable(graph, node) for node in graph}
    found: list[set[str]] = []
    for node in graph:
        circle = {other for other in reach[node] if node in reach[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def _reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def floors(graph: Graph) -> int:
    """How many nodes the longest way through a graph without circles has."""
    height: dict[str, int] = {}
    for node in TopologicalSorter(graph).static_order():
        height[node] = 1 + max((height[other] for other in graph.get(node, ())), default=0)
    return max(height.values())


def arrows_up() -> list[tuple[str, str]]:
    """The imports that the tables of rooms and packages do not allow."""
    return [
        (module, other)
        for module, others in all_imports().items()
        for other in sorted(others)
        if not _allowed(module, other)
    ]


def _allowed(module: str, other: str) -> bool:
    if room_of(module) != room_of(other):
        return module in LAUNCHERS or room_of(other) in MAY_IMPORT[room_of(module)]
    package, target = package_of(module), package_of(other)
    return target == package or target in PACKAGES_MAY_IMPORT[package]
