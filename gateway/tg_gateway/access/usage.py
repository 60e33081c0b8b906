"""Records -> tokens: what a request has used, counted by its provider or, where nobody counted, estimated."""

import math
from typing import Any

CHARACTERS_PER_TOKEN = 4
"""Characters of text for one token, where the provider told no usage: an answer that was left, a plain peer."""


class Usage:
    """Of one request; whatever its service is, its records have `in_token` and `out_token` or no counts at all.

    Attributes:
        request_bytes: bytes of the request.
    """

    def __init__(self) -> None:
        self.request_bytes = 0
        self._counted: int | None = None
        self._letters = 0

    def add(self, record: Any) -> None:
        """A record was relayed. Counts are deltas."""
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
