"""Configuration -> all templates by id: an immutable set, replaced as a whole when the file is edited."""

from typing import Self

from tg_base.config import Config, Findings
from tg_flow.prompt.prompt_template import PromptTemplate, check_template, list_names
from tg_schema.errors import BadRequest, NotFound


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

    @staticmethod
    def check(config: Config, findings: Findings) -> None:
        """Find all errors of all templates; `of` raises the first."""
        for name in config.prompts.templates:
            check_template(config, name, findings)

    def get(self, name: str | None) -> PromptTemplate:
        """The template with that id.

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
