"""How a record's answer ended -> TGI's word for it."""

from collections.abc import Sequence
from typing import Literal

from tg_schema.errors import ContentFilter

Ending = Literal["length", "eos_token", "stop_sequence"]
"""All that TGI knows."""


def name_ending(reason: str | None, stopped_by: str | int | None, text: str, stops: Sequence[str]) -> Ending:
    """TGI's `finish_reason`.

    Args:
        reason: the record's `finish_reason`.
        stopped_by: what the record says that ended the answer; None = its own end, or the provider does not say.
        text: of the answer; the stop string that has ended it is its end.
        stops: the stop strings that were asked for.

    Raises:
        ContentFilter: the provider's filter ended the answer, and TGI has no word for an answer of which a part is
            missing.
    """
    if reason == "length":
        return "length"
    if reason == "content_filter":
        raise ContentFilter("the provider's filter ended the answer; ask for something else")
    stopped = stopped_by is not None or text.endswith(tuple(stops))
    return "stop_sequence" if stopped else "eos_token"
