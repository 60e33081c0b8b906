"""Provider's tool call deltas -> numbered calls: to which call of an answer a delta belongs."""


class CallNumbers:
    """Numbers an answer's calls from 0 on, in the order in which they begin.

    A delta belongs to the call with its index or, without an index, to the call with its id. A delta without both
    begins a call if it has a name, and otherwise belongs to the newest call. Some servers give every call the index 0;
    therefore a delta with a name and a different id begins a new call.

    Attributes:
        count: the number of calls so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._numbers: dict[int | str, int] = {}
        self._ids: dict[int, str] = {}

    def number(self, index: int | None, call_id: str | None, name: str | None) -> int:
        """The number of the call that a delta belongs to; a new one if the delta begins a call."""
        key = (call_id or None) if index is None else index  # Some servers send an empty id for "no id".
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
