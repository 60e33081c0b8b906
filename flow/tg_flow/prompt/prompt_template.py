"""Configuration -> template: its two texts, its response type and its schema, ready to render."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tg_base.config import Config, Findings
from tg_base.llm import BadSchema, ObjectSchema
from tg_flow.prompt.meter import Meter
from tg_flow.prompt.template_syntax import Refused
from tg_flow.prompt.template_text import TemplateText
from tg_schema.errors import BadRequest

MAX_SHOWN_NAMES = 20
"""Names that an error lists."""


class Rendered(NamedTuple):
    """The rendered texts for the model."""

    system: str
    prompt: str


class PromptTemplate:
    """A template; it never changes, so that any thread may render.

    Args:
        config: the whole configuration.
        name: the template's id in it.

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


def check_template(config: Config, name: str, findings: Findings) -> None:
    """Find all errors of one template."""
    for part in (_prompt, _system, _schema):
        with findings.collect():
            part(config, name)


def list_names(names: frozenset[str]) -> str:
    """Names for an error, sorted, at most `MAX_SHOWN_NAMES`."""
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
