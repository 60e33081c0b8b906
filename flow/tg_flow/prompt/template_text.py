"""Template source -> text: compiled once, rendered within a budget."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError

from tg_flow.prompt.meter import METER, Meter
from tg_flow.prompt.prompt_environment import PromptEnvironment
from tg_flow.prompt.template_syntax import Refused, add_metering, check_syntax
from tg_schema.errors import BadRequest

MAX_SOURCE_CHARACTERS = 100_000
"""Characters of a template."""

MAX_TOKENS = 15_000
"""Tokens of a template, including white space: more takes too long to parse."""

MAX_PROMPT_CHARACTERS = 2_000_000
"""Characters of a rendered text; the limit of the bus is a little higher."""

_ENVIRONMENT = PromptEnvironment()
_FAILURES = (
    TemplateError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AssertionError,
    AttributeError,
    RecursionError,
)


class TemplateText:
    """A compiled template; any thread may render it.

    Args:
        name: its name in errors.
        source: the template.

    Attributes:
        variables: the names of its variables.

    Raises:
        Refused: it is not a template, or uses what is not allowed; with the line.
    """

    def __init__(self, name: str, source: str) -> None:
        self._name = name
        if len(source) > MAX_SOURCE_CHARACTERS:
            raise Refused(f"a template has at most {MAX_SOURCE_CHARACTERS} characters; pass long text as a variable", 1)
        try:
            if any(count >= MAX_TOKENS for count, _ in enumerate(_ENVIRONMENT.lex(source))):
                raise Refused("a template has at most a few thousand operations; make it simpler", 1)
            tree = _ENVIRONMENT.parse(source)
            check_syntax(tree)
            self.variables = _variables(tree)
            code = _ENVIRONMENT.compile(add_metering(tree), filename=name)
            self._template = Template.from_code(_ENVIRONMENT, code, _ENVIRONMENT.globals)
        except TemplateSyntaxError as error:
            raise Refused(error.message or "not a template", error.lineno) from None
        except (RecursionError, SyntaxError, ValueError, MemoryError):
            raise Refused("nested too deep, or a number is too long", 1) from None

    def render(self, variables: Mapping[str, Any], meter: Meter) -> str:
        """Render it. Values are never rendered as templates.

        Raises:
            BadRequest: a variable is missing or of a type that the template cannot use; with the template's line.
            TooMuchWork: the budget is used up.
        """
        METER.set(meter)
        pieces, length = [], 0
        try:
            for piece in self._template.root_render_func(self._template.new_context(dict(variables))):
                # Charge each piece, even an empty one, since charging also checks the clock.
                meter.charge(1)
                pieces.append(piece)
                length += len(piece)
                if length > MAX_PROMPT_CHARACTERS:
                    raise BadRequest(f"{self._name}: the text grows over {MAX_PROMPT_CHARACTERS} characters; send less")
        except _FAILURES as error:
            self._fail(error)
        return "".join(pieces)

    def _fail(self, error: Exception) -> NoReturn:
        match error:
            case UndefinedError(message=str(reason)) | SecurityError(message=str(reason)):
                pass
            case RecursionError():
                reason = "a value is nested too deep"
            case _:
                reason = "a value has a type, or a number a size, that the template cannot use here"
        raise BadRequest(f"{self._name}, line {self._line(error.__traceback__)}: {reason}") from None

    def _line(self, trace: TracebackType | None) -> int:
        """The template's line that was running: the innermost frame of its code."""
        line = 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._name:
                line = trace.tb_lineno
            trace = trace.tb_next
        return self._template.get_corresponding_lineno(line)


def _variables(tree: nodes.Template) -> frozenset[str]:
    """As `meta.find_undeclared_variables`, which would evaluate constants on the way, unmetered."""
    names = meta.TrackingCodeGenerator(_ENVIRONMENT)
    names.optimizer = None
    names.visit(tree)
    return frozenset(names.undeclared_identifiers) - {"range"}
