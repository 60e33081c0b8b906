"""Template -> value: the filters and tests of templates, each with a bounded amount of work.

Filters whose result is no larger than their input are Jinja's own. The others, where a number or a second value could
enlarge the result, are ours. Filters that are missing (`center`, `format`, `batch`, `attr` ...) are missing on purpose.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

import msgspec
from jinja2 import Undefined
from jinja2.filters import FILTERS as JINJAS_FILTERS
from jinja2.tests import TESTS as JINJAS_TESTS

from tg_flow.prompt.meter import NODE_COST, charge, charge_made, charge_read, each

_Function = Callable[..., Any]

_encode = msgspec.json.Encoder().encode

MAX_INDENT = 8
MAX_DIGITS = 15


def text_of(value: Any) -> str:
    """A value as text for a prompt: a string unchanged, everything else as JSON.

    Raises:
        UndefinedError: the value is missing.
        TypeError: the value is a function or an iterator.
    """
    if type(value) is str:
        return value
    if isinstance(value, Undefined):
        return str(value)
    charge_read(value)
    return str(charge_made(_encode(value).decode()))


def _join(values: Iterable[Any], separator: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        values = (value[attribute] for value in values)
    texts = []
    for value in each(values):
        texts.append(text_of(value))
        charge(len(texts[-1]) + len(separator))
    return separator.join(texts)


def _replace(value: Any, old: str, new: str) -> str:
    text = text_of(value)
    charge(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _indent(value: Any, width: int = 4, first: bool = False) -> str:
    text = text_of(value)
    # Without this limit, a template could make a text of any length.
    if not 0 <= width <= 100:
        raise ValueError
    lines = text.split("\n")
    charge(len(text) + len(lines) * (NODE_COST + width))
    padding = " " * width
    return "\n".join(padding + line if line and (first or number) else line for number, line in enumerate(lines))


def _sum(values: Iterable[Any], attribute: str | None = None) -> float:
    # Do not use Python's `sum`, whose rounding changed with 3.12.
    total: float = 0
    for value in each(values):
        total += _number(value if attribute is None else value[attribute])
    return total


def _number(value: Any) -> float:
    # Do not use `isinstance`: in Python, `True` is a number.
    if type(value) not in {int, float}:
        raise TypeError
    number: float = value
    return number


def _round(value: Any, precision: int = 0) -> float:
    if not 0 <= precision <= MAX_DIGITS:
        raise ValueError
    return round(_number(value), precision) if precision else float(round(_number(value)))


def _tojson(value: Any, indent: int | None = None) -> str:
    if isinstance(value, Undefined):
        return str(value)
    charge_read(value)
    text = _encode(value)
    if indent is not None:
        if not 0 < indent <= MAX_INDENT:
            raise ValueError
        charge(len(text) * (2 + indent))
        text = msgspec.json.format(text, indent=indent)
    return str(charge_made(text.decode()))


def _title(value: Any) -> str:
    words = text_of(value).split(" ")
    return str(charge_made(" ".join(word[:1].upper() + word[1:].lower() for word in each(words))))


def _charge(function: Any) -> _Function:
    """Charge for input and output. `wraps` keeps the mark by which Jinja knows filters that take its environment."""

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            charge_read(value)
        return charge_made(function(*args, **kwargs))

    return charged


def _sorting(function: Any) -> _Function:
    """As `_charge`, and charge for the comparisons, which cannot be interrupted."""
    charged = _charge(function)

    @wraps(function)
    def sorting(environment: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        values = list(each(values))
        _charge_sorting(values)
        return charged(environment, values, *args, **kwargs)

    return sorting


def _dictsort(value: Mapping[Any, Any], reverse: bool = False) -> list[tuple[Any, Any]]:
    items = list(each(value.items()))
    _charge_sorting(items)
    return sorted(items, key=lambda item: str(item[0]).lower(), reverse=reverse)


def _charge_sorting(values: list[Any]) -> None:
    charge(NODE_COST * len(values) * len(values).bit_length())


_OWN: dict[str, _Function] = {
    "dictsort": _dictsort,
    "indent": _indent,
    "items": lambda value: list(each(value.items())),
    "join": _join,
    "list": lambda values: list(each(values)),
    "replace": _replace,
    "round": _round,
    "sort": _sorting(JINJAS_FILTERS["sort"]),
    "string": text_of,
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "wordcount": lambda value: len(charge_made(text_of(charge_read(value)).split())),
}
_FILTERS = [
    "capitalize",
    "count",
    "d",
    "default",
    "first",
    "float",
    "int",
    "last",
    "length",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "reverse",
    "select",
    "selectattr",
    "trim",
    "truncate",
    "unique",
    "upper",
]
_TESTS = [
    "boolean",
    "defined",
    "divisibleby",
    "even",
    "false",
    "float",
    "in",
    "integer",
    "iterable",
    "lower",
    "mapping",
    "none",
    "number",
    "odd",
    "sequence",
    "string",
    "true",
    "undefined",
    "upper",
    "eq",
    "equalto",
    "==",
    "ne",
    "!=",
    "gt",
    "greaterthan",
    ">",
    "ge",
    ">=",
    "lt",
    "lessthan",
    "<",
    "le",
    "<=",
]

FILTERS: dict[str, _Function] = {name: _charge(JINJAS_FILTERS[name]) for name in _FILTERS} | _OWN
TESTS: dict[str, _Function] = {name: _charge(JINJAS_TESTS[name]) for name in _TESTS}
