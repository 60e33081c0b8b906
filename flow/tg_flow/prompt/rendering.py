"""Template and variables -> prompt, without ever holding up the loop.

Nearly all templates are rendered in microseconds, where they are asked for. One that has not come to its end after a
few milliseconds is begun anew on a thread, with a larger budget, and a few at a time.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from tg_flow.prompt.meter import Meter, TooMuchWork
from tg_flow.prompt.prompt_template import PromptTemplate, Rendered
from tg_schema.errors import BadRequest

QUICK_WORK, QUICK_SECONDS = 500_000, 0.005
MOST_WORK, MOST_SECONDS = 16_000_000, 0.4
"""The budget of a render: characters made or elements visited (16 each), and seconds."""

MAX_CONCURRENT_RENDERINGS = 2
"""Long renders at once; the others wait for their turn."""


class Rendering:
    """Renders for one service.

    Args:
        time: the clock that a render's seconds are measured by.
    """

    def __init__(self, time: Callable[[], float] = monotonic) -> None:
        self._time = time
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_RENDERINGS)

    async def render(self, template: PromptTemplate, variables: Mapping[str, Any]) -> Rendered:
        """The texts for the model.

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
