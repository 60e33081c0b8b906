"""Answer -> a later request: the signatures that Gemini wants back with its calls and our records cannot carry."""

MAX_SIGNATURES = 4096
"""Signatures kept per provider; each has a few kilobytes at most, usually some hundred bytes."""


class ThoughtSignatures:
    """The signatures of one provider's latest calls, by call id; the oldest is evicted first.

    A conversation that continues in another process, or after an eviction, continues without its signatures: the
    model loses its earlier reasoning, and nothing else.
    """

    def __init__(self, most: int = MAX_SIGNATURES) -> None:
        self._most = most
        self._kept: dict[str, str] = {}

    def keep(self, call_id: str, signature: str) -> None:
        """Store the signature of a call."""
        # Removed first, so that a call that is stored again counts as the newest.
        self._kept.pop(call_id, None)
        self._kept[call_id] = signature
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def of(self, call_id: str) -> str | None:
        """The signature of a call; None if it is not known."""
        return self._kept.get(call_id)
