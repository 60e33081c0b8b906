"""Configuration -> agent: the agents' prompts, built in or from the configuration."""

from collections.abc import Callable
from pathlib import Path
from time import thread_time
from typing import Any, Self

import msgspec

from tg_base.config import Config, read_config
from tg_flow.prompt import PromptTemplate, Rendered, Rendering

BUILT_IN_FILE = Path(__file__).with_name("agent_prompts.toml")


class AgentPrompts:
    """The agents' prompts. Immutable; replaced as a whole when the configuration is edited.

    Args:
        templates: the templates by name.
        time: the clock that limits the time of a rendering, in seconds.
    """

    def __init__(self, templates: dict[str, PromptTemplate], *, time: Callable[[], float] = thread_time) -> None:
        self._templates = templates
        self._rendering = Rendering(time)

    @classmethod
    def of(cls, config: Config, *, time: Callable[[], float] = thread_time) -> Self:
        """Compile the templates.

        Raises:
            BadRequest: a template of the configuration that replaces a built-in one is wrong; with file and line.
        """
        built_in = msgspec.structs.replace(read_config(BUILT_IN_FILE), source=None)
        own = config.prompts.templates
        return cls(
            {name: PromptTemplate(config if name in own else built_in, name) for name in built_in.prompts.templates},
            time=time,
        )

    async def render(self, name: str, **variables: Any) -> Rendered:
        """Render one prompt. Its template need not use all variables.

        Raises:
            BadRequest: it cannot be rendered with these variables.
        """
        template = self._templates[name]
        used = {name: value for name, value in variables.items() if name in template.variables}
        rendered = await self._rendering.render(template, used)
        return Rendered(rendered.system.strip(), rendered.prompt.strip())
