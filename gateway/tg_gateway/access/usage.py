"""Records -> tokens: what a request has used, as its provider counted it, or else estimated."""

import math
from typing import Any

from tg_schema.prompt_size import TOKEN_BYTES


class Usage:
    """The usage of one request. Records of any service have `in_token` and `out_token`, or no counts at all.

    Attributes:
        request_bytes: bytes of the request.
    """

    def __init__(self) -> None:
        self.request_bytes = 0
        self._counted: int | None = None
        self._letters = 0
        self._complete = False

    def add(self, record: Any) -> None:
        """Add a relayed record. Its counts are deltas."""
        self._complete = bool(getattr(record, "last", True))
        text = getattr(record, "response", None) or getattr(record, "text", None) or getattr(record, "content", None)
        self._letters += len(text or "")
        for count in (getattr(record, "in_token", None), getattr(record, "out_token", None)):
            if count is not None:
                self._counted = (self._counted or 0) + count

    def tokens(self, *, failed: bool) -> int:
        """Tokens of prompt and answer. A failure before the first text costs nothing.

        These are the provider's counts, if it counted everything. If the client left early or the provider counted
        nothing, estimate the tokens from the text.
        """
        counted = self._counted or 0
        if (self._complete and self._counted is not None) or (failed and not self._letters):
            return counted
        return max(counted, math.ceil((self.request_bytes + self._letters) / TOKEN_BYTES))
