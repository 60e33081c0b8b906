"""[models.NAME.options] -> options of a provider of Claude, on any host."""

from typing import Annotated, Literal

import msgspec

from tg_base.llm import AddressOptions


class ClaudeOptions(AddressOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a provider of Claude.

    Attributes:
        temperature: the default for requests without one; newer models refuse it.
        max_tokens: the default limit of an answer's tokens.
        thinking: the budget of thinking tokens before an answer, or "adaptive"; None = no thinking. Thinking text is
            returned as `reasoning` with a `signature`. With a budget, a request after tool calls is answered without
            thinking if it does not bring back the thinking before them.
        schema_by: how a schema is enforced: "format" by structured outputs, "tool" by a forced tool call, for models
            and hosts without structured outputs. JSON without a schema is always requested by a tool.
        effort_by: how a request's effort is sent: "effort" with adaptive thinking, or "budget" for models without it.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = 8192
    thinking: Annotated[int, msgspec.Meta(ge=1024)] | Literal["adaptive"] | None = None
    schema_by: Literal["format", "tool"] = "format"
    effort_by: Literal["effort", "budget"] = "effort"
