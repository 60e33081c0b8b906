"""[models.NAME.options] -> options of a provider of Gemini, on any host."""

from typing import Annotated, Literal

import msgspec

from tg_base.llm import AddressOptions


class GeminiOptions(AddressOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a provider of Gemini.

    Attributes:
        thoughts: request the thinking text, which is returned as `reasoning`; only for thinking models.
        effort_by: how a request's effort is sent: as a thinking level, or as a budget for models without levels.
        thinking_budget: maximum thinking tokens; 0 = none, -1 = the model decides, None = the provider's default.
    """

    thoughts: bool = False
    thinking_budget: Annotated[int, msgspec.Meta(ge=-1)] | None = None
    effort_by: Literal["level", "budget"] = "level"
