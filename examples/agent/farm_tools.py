"""Two tools for an agent. What the model is told of them is read from their signatures and docstrings."""

import ast
import asyncio
import operator
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from tg_schema.errors import BadRequest

NOTES = Path(__file__).parent / "notes"

_OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculator(expression: str) -> float:
    """Work out an arithmetic expression of numbers, + - * / and parentheses."""
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ArithmeticError, RecursionError, MemoryError):
        raise BadRequest(f"{expression[:100]} cannot be worked out") from None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_value(left), _value(right))
    raise BadRequest("an expression may have numbers, + - * / and parentheses")


async def search_notes(text: str) -> AsyncIterator[str]:
    """Find the lines of the notes that contain a text, in upper or lower case."""
    found = 0
    for path in sorted(NOTES.glob("*.txt")):
        lines = (await asyncio.to_thread(path.read_text, "utf-8")).splitlines()
        for number, line in enumerate(lines, 1):
            if text.lower() in line.lower():
                found += 1
                yield f"{path.name}:{number}: {line}\n"
    yield f"{found} lines found"
