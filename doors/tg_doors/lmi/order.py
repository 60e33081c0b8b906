"""A request as its writer needs it: its text, its parameters, and the requested shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tg_doors.lmi.parameters import LmiParameters


@dataclass(frozen=True, slots=True)
class Order:
    """One request for one text.

    Attributes:
        text: `inputs`.
        parameters: how to generate.
        given: the parameters as they came.
        compatible: whether TGI's names are wanted.
        details: whether the answer tells how it ended, and its tokens.
        model: its name.
        headers: further headers of the answer.
    """

    text: str
    parameters: LmiParameters
    given: Mapping[str, Any]
    compatible: bool
    details: bool
    model: str
    headers: Mapping[str, str]

    @property
    def prefix(self) -> str:
        """What the text of the answer begins with."""
        return self.text if self.parameters.return_full_text else ""

    @property
    def kept_stops(self) -> tuple[str, ...]:
        """The stop strings that may be the end of the text."""
        return self.parameters.stops if self.parameters.include_stop_str_in_output else ()
