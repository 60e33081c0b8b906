"""Template -> Jinja: an immutable, sandboxed environment with the allowed syntax and metered operators and calls."""

from typing import Any

from jinja2 import StrictUndefined, Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from typing_extensions import override

from tg_flow.prompt.filters import FILTERS, TESTS, text_of
from tg_flow.prompt.meter import charge, charge_made, charge_read, each
from tg_flow.prompt.template_syntax import CUT, EACH, READ, TEXT

MAX_RANGE_LENGTH = 10_000
MAX_EXPONENT = 1024
"""Most bits of a number that a template may compute."""

_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        {
            "upper",
            "lower",
            "strip",
            "lstrip",
            "rstrip",
            "title",
            "capitalize",
            "startswith",
            "endswith",
            "split",
            "rsplit",
            "splitlines",
            "find",
            "count",
            "isdigit",
            "isalpha",
        }
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"index", "count"}),
    LoopContext: frozenset({"cycle"}),
}


class Missing(StrictUndefined):
    """A missing variable or field. Every use of it fails, with a message of ours."""

    __slots__ = ()

    @property
    @override
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return f'"{self._undefined_name}" cannot be used in prompt templates'
        if self._undefined_obj is missing:
            return f'the variable "{self._undefined_name}" is missing'
        return f'a value has no field "{self._undefined_name}"'


class PromptEnvironment(ImmutableSandboxedEnvironment):
    """The environment of all templates. It never changes, so any thread may render."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            undefined=Missing,
            # Prompts are plain text, not HTML.
            autoescape=False,
            finalize=_finalize,
            # Otherwise Jinja would compute constant expressions while it compiles, without a meter.
            optimized=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.filters = FILTERS | {EACH: each, READ: charge_read, TEXT: text_of, CUT: _slice}
        self.tests = dict(TESTS)
        self.globals = {"range": _range}

    @override
    def getattr(self, obj: Any, attribute: str) -> Any:
        """A field of a value. Fields take precedence over methods, so `order.items` is the order's field `items`."""
        if type(obj) is dict and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)

    @override
    def is_safe_callable(self, obj: Any) -> bool:
        owner = getattr(obj, "__self__", None)
        return obj is _range or getattr(obj, "__name__", None) in _METHODS.get(type(owner), ())

    @override
    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, Undefined):
            str(obj)
        if not self.is_safe_callable(obj):
            raise SecurityError("only range and some methods of values can be called in prompt templates")
        charge_read(getattr(obj, "__self__", None))
        return charge_made(context.call(obj, *args, **kwargs))

    @override
    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, str) or isinstance(right, str):
            return _text_operation(operator, left, right)
        if _is_number(left) and _is_number(right):
            _check_numbers(operator, left, right)
        elif not isinstance(left, Undefined) and not isinstance(right, Undefined):
            raise TypeError
        charge(1)
        return self.binop_table[operator](left, right)


@pass_context
def _finalize(_: Context, value: Any) -> str:
    """The text that `{{ ... }}` writes. It takes the context only to keep Jinja from calling it at compile time."""
    text = text_of(value)
    charge(1 + len(text))
    return text


def _range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > MAX_RANGE_LENGTH:
        raise ValueError
    return numbers


def _slice(value: Any, start: int | None, stop: int | None, step: int | None) -> Any:
    if isinstance(value, Undefined):
        str(value)
    return charge_made(value[start:stop:step])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _check_numbers(operator: str, left: Any, right: Any) -> None:
    if not isinstance(left, int) or not isinstance(right, int):
        return
    size = {"*": left.bit_length() + right.bit_length(), "**": left.bit_length() * max(right, 1)}.get(operator, 0)
    if size > MAX_EXPONENT:
        raise OverflowError


def _text_operation(operator: str, left: Any, right: Any) -> str:
    if operator == "+" and isinstance(left, str) and isinstance(right, str):
        charge(len(left) + len(right))
        return left + right
    text, times = (left, right) if isinstance(left, str) else (right, left)
    if operator == "*" and isinstance(times, int):
        charge(len(text) * max(times, 0))
        return str(text * times)
    for value in (left, right):
        if isinstance(value, Undefined):
            str(value)
    raise TypeError
