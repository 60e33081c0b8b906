"""Parsed template -> the allowed part of Jinja, rewritten so that every operation charges the meter.

Refused are constructs that enlarge text without an operation that could be charged (macros, captured blocks, recursive
loops), and those that read other files (include, import, extends). List and table literals hold only constants, so
that no value contains itself.
"""

from math import isfinite

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from tg_flow.prompt.filters import FILTERS, TESTS

EACH, READ, TEXT, CUT = " each", " read", " text", " cut"
"""Filters that only this file can insert: no template can write a name that begins with a blank."""

MAX_NODES = 5000
"""Most operations, names and constants in one template: more would take too long to compile."""

_ALLOWED: tuple[type[nodes.Node], ...] = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.CondExpr,
    nodes.For,
    nodes.Assign,
    nodes.With,
    nodes.Name,
    nodes.Const,
    nodes.List,
    nodes.Tuple,
    nodes.Dict,
    nodes.Pair,
    nodes.Keyword,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.Filter,
    nodes.Test,
    nodes.Call,
    nodes.Compare,
    nodes.Operand,
    nodes.Concat,
    nodes.BinExpr,
    nodes.UnaryExpr,
)
_CONSTANT = (nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair)
_WORDS = {
    "AssignBlock": "set without =",
    "CallBlock": "call",
    "FilterBlock": "filter as a block",
    "FromImport": "from",
    "NSRef": "set of a field",
    "ScopedEvalContextModifier": "autoescape",
}


class Refused(Exception):
    """The template uses something that is not allowed; `message` says what, and what to use in its place."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


def check_syntax(template: nodes.Template) -> None:
    """Reject a template that uses something that is not allowed.

    Raises:
        Refused: it does; with the line.
    """
    # Use a list, not recursion: then only the number of nodes limits how deep a template may be nested.
    pending: list[nodes.Node] = [template]
    count = 0
    while pending:
        node = pending.pop()
        count += 1
        if count > MAX_NODES:
            raise Refused(f"a template has at most {MAX_NODES} operations; make it simpler", node.lineno)
        _check(node)
        pending.extend(node.iter_child_nodes())


def _check(node: nodes.Node) -> None:
    if not isinstance(node, _ALLOWED):
        kind = type(node).__name__
        raise Refused(f'"{_WORDS.get(kind, kind.lower())}" is not available in prompt templates', node.lineno)
    match node:
        case nodes.For(recursive=True):
            raise Refused("a loop cannot be recursive in prompt templates", node.lineno)
        case nodes.Filter(name=name) if name not in FILTERS:
            raise Refused(f'there is no filter "{name}"; known are {", ".join(sorted(FILTERS))}', node.lineno)
        case nodes.Test(name=name) if name not in TESTS:
            raise Refused(f'there is no test "{name}"; known are {", ".join(sorted(TESTS))}', node.lineno)
        case nodes.Name(name="self" | "super" | "caller"):
            raise Refused(f'"{node.name}" cannot be the name of a variable', node.lineno)
        case nodes.Const(value=float() as number) if not isfinite(number):
            raise Refused("a number is too large", node.lineno)
        case nodes.Call(node=called) if not _callable(called):
            raise Refused("only range and the methods of values can be called in prompt templates", node.lineno)
        case nodes.List() | nodes.Dict() | nodes.Tuple(ctx="load"):
            if any(not isinstance(child, _CONSTANT) for child in node.iter_child_nodes()):
                raise Refused("lists and tables can hold only constants; pass other values as variables", node.lineno)


def _callable(called: nodes.Node) -> bool:
    return isinstance(called, nodes.Getattr) or (isinstance(called, nodes.Name) and called.name == "range")


class _Rewriter(NodeTransformer):
    """Inserts a charging filter wherever Jinja's compiler itself would iterate, compare, slice or join."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja finds its visitors by these names
        self.generic_visit(node)
        node.iter = _make_filter(node.iter, EACH)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _make_filter(node.expr, READ)
        for operand in node.ops:
            operand.expr = _make_filter(operand.expr, READ)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _make_filter(nodes.List([_make_filter(part, TEXT) for part in node.nodes]), "join", node.lineno)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        ends = [end or nodes.Const(None) for end in (node.arg.start, node.arg.stop, node.arg.step)]
        return nodes.Filter(node.node, CUT, ends, [], None, None, lineno=node.lineno)


def add_metering(template: nodes.Template) -> nodes.Template:
    """The same template, with every operation charged. Modifies its argument."""
    _Rewriter().visit(template)
    return template


def _make_filter(node: nodes.Node, name: str, line: int | None = None) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=line or node.lineno)
