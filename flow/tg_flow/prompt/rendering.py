"""Template and variables -> prompt, without blocking the event loop.

Nearly all templates render in microseconds, in the loop. A template that has not finished after a few milliseconds is
started again in a thread, with a larger budget; only a few run there concurrently.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import thread_time
from typing import Any

from tg_flow.prompt.meter import Meter, TooMuchWork
from tg_flow.prompt.prompt_template import PromptTemplate, Rendered
from tg_schema.errors import BadRequest

QUICK_WORK, QUICK_SECONDS = 500_000, 0.005
MOST_WORK, MOST_SECONDS = 16_000_000, 0.4
"""The budget of a render: characters made or elements visited (16 each), and seconds."""

MAX_CONCURRENT_RENDERINGS = 2
"""Long renders that run concurrently; the others wait."""


class Rendering:
    """Renders for one service.

    Args:
        time: the clock for the time limit of a render, in seconds.
    """

    def __init__(self, time: Callable[[], float] = thread_time) -> None:
        self._time = time
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_RENDERINGS)

    async def render(self, template: PromptTemplate, variables: Mapping[str, Any]) -> Rendered:
        """Render the texts for the model.

        Raises:
            BadRequest: the variables do not fit, or the template does too much work.
        """
        try:
            return template.render(variables, Meter(QUICK_WORK, QUICK_SECONDS, self._time))
        except TooMuchWork:
            async with self._turns:
                return await asyncio.to_thread(self._render_long, template, variables)

    def _render_long(self, template: PromptTemplate, variables: Mapping[str, Any]) -> Rendered:
        try:
            return template.render(variables, Meter(MOST_WORK, MOST_SECONDS, self._time))
        except TooMuchWork:
            raise BadRequest(
                f'template "{template.name}" does too much work with these variables: it may take {MOST_SECONDS:g} s'
            ) from None
