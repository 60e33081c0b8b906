"""Answer -> a later request: what Gemini wants back with a call, and our records have no place for."""

MAX_SIGNATURES = 4096
"""Signatures of one provider; each has a few kilobytes at most, usually some hundred bytes."""


class ThoughtSignatures:
    """The signatures of the last calls of one provider, by the calls' ids; the oldest is forgotten first.

    A conversation that goes on in another process, or after many others, goes on without: that costs the model the
    thread of its thought, and nothing else.
    """

    def __init__(self, most: int = MAX_SIGNATURES) -> None:
        self._most = most
        self._kept: dict[str, str] = {}

    def keep(self, call_id: str, signature: str) -> None:
        """Remember what came with a call."""
        self._kept.pop(call_id, None)
        self._kept[call_id] = signature
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def of(self, call_id: str) -> str | None:
        """What came with a call; None where that is not known."""
        return self._kept.get(call_id)
