"""One Python file -> its figures."""

import ast
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.unit.source_imports import parse

_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_WITHOUT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
_DIRECTIVES = ("# noqa", "# type:", "#!")
"""Comments for a tool; they tell a reader nothing."""
_BROAD = {"Exception", "BaseException"}


@dataclass(frozen=True)
class Function:
    """A function or method.

    Attributes:
        lines: from `def` to its last line, without the docstring.
        annotated: whether all arguments and the result have types.
        statements: all in its body, nested ones too.
        shape: its body without names and values: two functions of one shape do the same to different things.
    """

    lines: int
    annotated: bool
    statements: int
    shape: str

    @classmethod
    def of(cls, node: _Definition) -> "Function":
        """Measure one."""
        docstring = _lines_of(node.body[0]) if _is_text(node.body[0]) else ()
        lines = len(_lines_of(node)) - len(docstring)
        body = [inner for statement in _without_docstring(node.body) for inner in ast.walk(statement)]
        statements = sum(isinstance(inner, ast.stmt) for inner in body)
        return cls(lines, _annotated(node), statements, " ".join(type(inner).__name__ for inner in body))


class Source:
    """The figures of one file, each found when it is asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return parse(self.path)

    @cached_property
    def lines(self) -> int:
        """All its lines."""
        return self.path.read_text("utf-8").count("\n")

    @cached_property
    def _tokens(self) -> tuple[tokenize.TokenInfo, ...]:
        with self.path.open("rb") as file:
            return tuple(tokenize.tokenize(file.readline))[1:]

    @cached_property
    def code_lines(self) -> int:
        """Lines without comments, blanks and docstrings."""
        code = {
            line
            for token in self._tokens
            if token.type not in _WITHOUT_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        return len(code - {line for node in ast.walk(self.tree) if _is_text(node) for line in _lines_of(node)})

    @cached_property
    def comments(self) -> int:
        """Lines of comments; what is for a tool does not count."""
        comments = [token.string for token in self._tokens if token.type == tokenize.COMMENT]
        return sum(not comment.startswith(_DIRECTIVES) for comment in comments)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """All functions and methods, nested ones too."""
        return tuple(Function.of(node) for node in ast.walk(self.tree) if isinstance(node, _Definition))

    @cached_property
    def body_lines(self) -> frozenset[int]:
        """The lines of what functions do. The rest are declarations: imports, fields, signatures, docstrings."""
        functions = [node for node in ast.walk(self.tree) if isinstance(node, _Definition)]
        bodies = (statement for function in functions for statement in _without_docstring(function.body))
        return frozenset(line for statement in bodies for line in _lines_of(statement))

    @cached_property
    def documented(self) -> tuple[bool, ...]:
        """For each public name (the module, classes, functions, methods that override nothing): has it a docstring?"""
        return tuple(ast.get_docstring(node) is not None for node in (self.tree, *_public(self.tree)))

    @cached_property
    def broad_excepts(self) -> tuple[int, ...]:
        """The lines that catch every exception."""
        return tuple(
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ExceptHandler) and (node.type is None or _names(node.type) & _BROAD)
        )


def _public(node: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | _Definition]:
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | _Definition) and not inner.name.startswith("_"):
            if not any("override" in _names(each) for each in inner.decorator_list):
                yield inner
            if isinstance(inner, ast.ClassDef):
                yield from _public(inner)


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _annotated(node: _Definition) -> bool:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
    given = [argument for argument in arguments if argument is not None and argument.arg not in {"self", "cls"}]
    return node.returns is not None and all(argument.annotation is not None for argument in given)


def _is_text(node: ast.AST) -> bool:
    """Whether this is a docstring, or a text that describes the name above it."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    return body[1:] if body and _is_text(body[0]) else body


def _lines_of(node: ast.AST) -> range:
    first, last = getattr(node, "lineno", 1), getattr(node, "end_lineno", 0)
    return range(first, last + 1)
