"""Provider's wire -> chunks: which call of an answer a piece belongs to."""


class CallNumbers:
    """Numbers an answer's calls from 0 on, in the order in which they begin.

    A piece belongs to the call of its index; where the server numbers nothing, to the call of its id. One with neither
    begins a call where it has a name, and belongs to the newest one otherwise. Some servers give every call the index
    0: a piece with another id and a name begins a new call.

    Attributes:
        count: how many calls have begun.
    """

    def __init__(self) -> None:
        self.count = 0
        self._numbers: dict[int | str, int] = {}
        self._ids: dict[int, str] = {}

    def number(self, index: int | None, call_id: str | None, name: str | None) -> int:
        """The number of the call that a piece belongs to; which is new where the piece begins one."""
        key = (call_id or None) if index is None else index  # an empty id is none
        known = None if key is None else self._numbers.get(key)
        if key is None and not name and self.count:
            known = self.count - 1
        elif index is not None and known is not None and call_id and name and self._ids.get(known, call_id) != call_id:
            known = None
        if known is None:
            known = self.count
            self.count += 1
        if key is not None:
            self._numbers[key] = known
        if call_id:
            self._ids.setdefault(known, call_id)
        return known
