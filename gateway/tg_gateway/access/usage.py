"""Records -> tokens: what a request has used, as its provider counted it, or else estimated."""

import math
from typing import Any

CHARACTERS_PER_TOKEN = 4
"""Characters per token, for estimates where no usage was reported (cancelled streams, plain peers)."""


class Usage:
    """The usage of one request. Records of any service have `in_token` and `out_token`, or no counts at all.

    Attributes:
        request_bytes: bytes of the request.
    """

    def __init__(self) -> None:
        self.request_bytes = 0
        self._counted: int | None = None
        self._letters = 0

    def add(self, record: Any) -> None:
        """Add a relayed record. Its counts are deltas."""
        text = getattr(record, "response", None) or getattr(record, "text", None) or getattr(record, "content", None)
        self._letters += len(text or "")
        for count in (getattr(record, "in_token", None), getattr(record, "out_token", None)):
            if count is not None:
                self._counted = (self._counted or 0) + count

    def tokens(self, *, failed: bool) -> int:
        """Tokens of prompt and answer. A failure before the first text costs nothing."""
        if self._counted is not None:
            return self._counted
        if failed and not self._letters:
            return 0
        return math.ceil((self.request_bytes + self._letters) / CHARACTERS_PER_TOKEN)
