"""Configuration -> all templates by id: an immutable set, replaced as a whole when the file is edited."""

from typing import Self

from tg_base.config import Config, Findings
from tg_flow.prompt.prompt_template import PromptTemplate, check_template, list_names
from tg_schema.errors import BadRequest, NotFound


class Templates:
    """The templates that a prompt service answers to."""

    def __init__(self, templates: dict[str, PromptTemplate]) -> None:
        self._templates = templates

    @classmethod
    def of(cls, config: Config) -> Self:
        """Compile all of them; takes about a millisecond for each.

        Raises:
            BadRequest: the first one that is wrong, with file and line.
        """
        return cls({name: PromptTemplate(config, name) for name in config.prompts.templates})

    @staticmethod
    def check(config: Config, findings: Findings) -> None:
        """Find all that is wrong with all of them; `of` raises the first."""
        for name in config.prompts.templates:
            check_template(config, name, findings)

    def get(self, name: str | None) -> PromptTemplate:
        """The template of that id.

        Raises:
            BadRequest: none was asked for.
            NotFound: it is not known; the message lists the ids that are.
        """
        if not name:
            raise BadRequest("id is missing: name a template")
        template = self._templates.get(name)
        if template is None:
            known = list_names(frozenset(self._templates)) or "none"
            raise NotFound(f'there is no template "{name[:100]}"; known are {known}')
        return template
