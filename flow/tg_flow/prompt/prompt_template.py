"""Configuration -> template: its two texts, its response type and its schema, ready to render."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError

from tg_base.config import Config, Findings
from tg_base.llm import BadSchema, ObjectSchema
from tg_flow.prompt.meter import METER, Meter
from tg_flow.prompt.prompt_environment import PromptEnvironment
from tg_flow.prompt.template_syntax import Refused, add_metering, check_syntax
from tg_schema.errors import BadRequest, NotFound

MAX_SHOWN_NAMES = 20
"""Most names that an error lists."""


MAX_SOURCE_CHARACTERS = 100_000
"""Most characters of a template."""

MAX_TOKENS = 15_000
"""Most tokens of a template, including white space: more would take too long to parse."""

MAX_PROMPT_CHARACTERS = 2_000_000
"""Most characters of a rendered text; the limit of the bus is a little higher."""

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
        name: the name for errors.
        source: the template.

    Attributes:
        variables: the names of its variables.

    Raises:
        Refused: it is not a valid template, or uses something that is not allowed; with the line.
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
        """Render the text. Values are never rendered as templates themselves.

        Raises:
            BadRequest: a variable is missing, or has a type that the template cannot use; with the template's line.
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
        """The template's line that failed: the innermost frame of its code."""
        line = 0
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self._name:
                line = trace.tb_lineno
            trace = trace.tb_next
        return self._template.get_corresponding_lineno(line)


def _variables(tree: nodes.Template) -> frozenset[str]:
    """As `meta.find_undeclared_variables`, but without evaluating constants, which no meter would bound."""
    names = meta.TrackingCodeGenerator(_ENVIRONMENT)
    names.optimizer = None
    names.visit(tree)
    return frozenset(names.undeclared_identifiers) - {"range"}


class Rendered(NamedTuple):
    """The rendered texts for the model."""

    system: str
    prompt: str


class PromptTemplate:
    """A template. It never changes, so any thread may render it.

    Args:
        config: the whole configuration.
        name: the template's id in the configuration.

    Raises:
        BadRequest: a text or the schema is wrong; with file and line.
    """

    def __init__(self, config: Config, name: str) -> None:
        table = config.prompts.templates[name]
        self.name = name
        self.response_type = table.response_type
        self.schema = table.schema
        self._prompt = _prompt(config, name)
        self._system = _system(config, name)
        self.check_answer = _schema(config, name)
        self.variables = self._prompt.variables | self._system.variables

    def render(self, variables: Mapping[str, Any], meter: Meter) -> Rendered:
        """Render both texts.

        Raises:
            BadRequest: a variable is unknown, missing, or of a type that the template cannot use.
            TooMuchWork: the budget is used up.
        """
        for name in variables.keys() - self.variables:
            known = list_names(self.variables) or "none"
            raise BadRequest(f'template "{self.name}" has no variable "{name[:100]}"; it has {known}')
        rendered = Rendered(self._system.render(variables, meter), self._prompt.render(variables, meter))
        if not rendered.prompt.strip():
            raise BadRequest(f'template "{self.name}" renders an empty prompt with these variables; fill them')
        return rendered


class Templates:
    """The templates of a prompt service."""

    def __init__(self, templates: dict[str, PromptTemplate]) -> None:
        self._templates = templates

    @classmethod
    def of(cls, config: Config) -> Self:
        """Compile all of them; takes about a millisecond for each.

        Raises:
            BadRequest: the first one that is wrong, with file and line.
        """
        return cls({name: PromptTemplate(config, name) for name in config.prompts.templates})

    def get(self, name: str | None) -> PromptTemplate:
        """The template with this id.

        Raises:
            BadRequest: no id was given.
            NotFound: the id is unknown; the message lists the known ones.
        """
        if not name:
            raise BadRequest("id is missing: name a template")
        template = self._templates.get(name)
        if template is None:
            known = list_names(frozenset(self._templates)) or "none"
            raise NotFound(f'there is no template "{name[:100]}"; known are {known}')
        return template


def check_templates(config: Config, findings: Findings) -> None:
    """Find all errors of all templates, while `Templates.of` raises only the first."""
    for name in config.prompts.templates:
        for part in (_prompt, _system, _schema):
            with findings.collect():
                part(config, name)


def list_names(names: frozenset[str]) -> str:
    """Names for an error: sorted, at most `MAX_SHOWN_NAMES`."""
    some = ", ".join(sorted(names)[:MAX_SHOWN_NAMES])
    return some if len(names) <= MAX_SHOWN_NAMES else f"{some} and {len(names) - MAX_SHOWN_NAMES} more"


def _prompt(config: Config, name: str) -> TemplateText:
    source = config.prompts.templates[name].prompt
    return _text(config, ("prompts", "templates", name, "prompt"), f'template "{name}"', source)


def _system(config: Config, name: str) -> TemplateText:
    own = config.prompts.templates[name].system
    if own is None:
        return _text(config, ("prompts", "system"), "system template", config.prompts.system)
    return _text(config, ("prompts", "templates", name, "system"), f'system template of "{name}"', own)


def _text(config: Config, keys: tuple[str, ...], name: str, source: str) -> TemplateText:
    try:
        return TemplateText(name, source)
    except Refused as refused:
        where = config.where(*keys, line=refused.line)
        raise BadRequest(f"{where}: {name}, its line {refused.line}: {refused.message}") from None


def _schema(config: Config, name: str) -> ObjectSchema | None:
    table, keys = config.prompts.templates[name], ("prompts", "templates", name, "schema")
    if table.schema is None:
        return None
    try:
        schema = ObjectSchema(table.schema, trusted=True)
    except BadSchema as bad:
        raise BadRequest(f"{config.where(*keys, *bad.path)}: {bad.message}") from None
    if table.response_type == "text":
        raise BadRequest(f'{config.where(*keys)}: a schema needs response_type = "json" or "jsonl"; add it')
    return schema
