"""Entries of one log -> the answer that they hold: whole, or still being made.

An answer that was kept at its end is one entry. An answer in the background consists of a head, notes which process
makes it and where, parts, a note that a processor works on it, signs of life, perhaps a request to stop, and an end.
Of several ends, the first counts for every reader: the writer, and readers that took it for dead, may each append one.
An end may free the name; then the next head restarts the log.
"""

from collections.abc import Mapping
from typing import Final, cast, get_args

from tg_base.bus import Bus, Entry
from tg_base.client import StreamOrigin
from tg_gateway.dialects import BEGUN_LINES, KeptAnswer, Outcome
from tg_schema.errors import BadRequest

WHOLE, HEAD, PART, ALIVE, BEGUN, CANCEL, END = "", "head", "records", "alive", "begun", "cancel", "end"
QUEUED, ASKED, RETURNED, LEFT, FREED = "queued", "asked", "returned", "left", "freed"
"""The kinds of entries."""

_KIND, _CLAIM, _BY = "kind", "claim", "by"
"""Properties of entries; of a first one,"""
_KEY, _EXPIRES, _WAITS, _ATTEMPTS = "key", "expires", "waits", "attempts"
"""of notes who makes the answer,"""
_OVER, _SPENT, _RESUMES = "over", "spent", "resumes"
_ORIGIN: Final = ("stream", "attempt", "processor")
"""of parts, requests to stop, and ends."""
_NUMBER, _TAKEN, _AT, _OUTCOME, _CUT, _FREE = "number", "taken", "at", "outcome", "cut", "free"
_OUTCOMES: Final = frozenset(get_args(Outcome))


def label_first(
    kind: str, owner: str, expires: float, claim: str = "", waits: float | None = None, *, attempts: int = 1
) -> Mapping[str, str]:
    """The properties of the first entry: whose answer it is, and until when (wall clock).

    Args:
        kind: `WHOLE` or `HEAD`.
        owner: whose it is.
        expires: until when.
        claim: tells it from first entries that others try to write at the same time.
        waits: until when it may wait for room (wall clock); None = it does not.
        attempts: how often a model may be asked for one that waits.
    """
    waiting = {} if waits is None else {_WAITS: str(waits)}
    repeats = {_ATTEMPTS: str(attempts)} if attempts > 1 else {}
    return {_KIND: kind, _KEY: owner, _EXPIRES: str(expires)} | ({_CLAIM: claim} if claim else {}) | waiting | repeats


def label_part(number: int, by: str | None = None, claim: str = "", taken: int = 0) -> Mapping[str, str]:
    """The properties of a part.

    Args:
        number: they are numbered from 0.
        by: as of an end.
        claim: as of an end.
        taken: frames of the answer that the parts up to this one have, as `ResponseStream.taken`.
    """
    return {**label(PART, by, claim), _NUMBER: str(number)} | ({_TAKEN: str(taken)} if taken else {})


def label_end(
    outcome: Outcome, *, cut: bool = False, claim: str = "", frees: bool = False, by: str | None = None
) -> Mapping[str, str]:
    """The properties of the end.

    Args:
        outcome: the answer's state.
        cut: whether some of its parts are missing.
        claim: the claim of the head that it ends, so that it cannot end a later one; "" = that head has none.
        frees: whether the next head restarts the log.
        by: the claim of the process that makes the answer, "" = no process does; the end does not count if another
            one does. None = it counts.
    """
    notes = ({_CUT: "1"} if cut else {}) | ({_FREE: "1"} if frees else {})
    return {**label(END, by, claim), _OUTCOME: outcome} | notes


def label_asked(claim: str, over: str = "", origin: StreamOrigin | None = None) -> Mapping[str, str]:
    """The properties of a note that a process makes the answer: a model may be asked once this is in the log.

    Args:
        claim: of that process.
        over: the claim that it replaces; the note is void if another one has the answer.
        origin: where the answer is made, and another process may adopt it; None = nowhere.
    """
    place = {} if origin is None else dict(zip(_ORIGIN, map(str, origin), strict=True))
    own = {_KIND: ASKED, _CLAIM: claim, **place}
    return own | ({_OVER: over} if over else {})


def label_returned(claim: str, resumes: float | None = None) -> Mapping[str, str]:
    """The properties of a note that the answer waits again.

    Args:
        claim: of who makes it.
        resumes: a model may have been asked for it, so that one attempt is used: when the next one may begin (wall
            clock). None = no attempt is used.
    """
    return {_KIND: RETURNED, _CLAIM: claim} | ({} if resumes is None else {_SPENT: "1", _RESUMES: str(resumes)})


def label_cancel(at: float) -> Mapping[str, str]:
    """The properties of a request to stop that says when it came (wall clock)."""
    return {**label(CANCEL), _AT: str(at)}


def label(kind: str, by: str | None = None, claim: str = "") -> Mapping[str, str]:
    """The properties of an entry that says nothing else. `by` and `claim`: as of an end."""
    return {_KIND: kind} | ({_CLAIM: claim} if claim else {}) | ({} if by is None else {_BY: by})


def is_late(entry: Entry, claim: str) -> bool:
    """Whether the entry belongs to a different owner's claim.

    A bus may store an end twice, a reader may write one while the name is freed and reused, and a gateway wrongly
    declared dead may go on.
    """
    return kind_of(entry) in {PART, BEGUN, CANCEL, END, LEFT, FREED} and entry.properties.get(_CLAIM, claim) != claim


def kind_of(entry: Entry) -> str:
    """Which kind an entry is."""
    return entry.properties.get(_KIND, WHOLE)


def claim_of(entry: Entry) -> str:
    """The claim that an entry is about; "" = none."""
    return entry.properties.get(_CLAIM, "")


class NameTaken(BadRequest):
    """An answer of this name is kept, or is being made, which the request does not join.

    Args:
        field: the request's field from which the name is made.
    """

    status = 409

    def __init__(self, field: str = "name") -> None:
        super().__init__(
            f"{field}: the answer to another request is kept already under this one: read on in it, or take another"
        )


class JobLog:
    """The state of an answer, from the entries added so far.

    Attributes:
        owner: whose answer it is; None if there is none, or a stranger wrote to the log.
        expires: when it ends, by the wall clock; long ago if that cannot be read.
        claim: the claim of its first entry.
        waits: until when it may wait for a process that makes it, by the wall clock; None = none does.
        taker: the claim of the process that makes it; "" = none.
        attempts: how many were begun, without those in which no model was asked.
        resumes: after a lost attempt, when the next one may begin, by the wall clock.
        cancelled: whether a client has cancelled it.
        cancelled_at: when it first did so, by the wall clock; 0 = not stated.
        outcome: its state.
        position: the position of the last entry.
        free: whether the next head restarts the log.
        part_count: how many parts it has had.
        taken: frames of the answer that the parts have; 0 = not stated.
        origin: where another process may adopt the answer; None = nowhere.
        size: bytes of all bodies.
    """

    def __init__(self, entries: tuple[Entry, ...] = ()) -> None:
        self.owner: str | None = None
        self.expires = 0.0
        self.claim = ""
        self.waits: float | None = None
        self.position = ""
        self.size = 0
        self._head: bytes | None = None
        self._max_attempts = 1.0
        self._empty()
        for entry in entries:
            self.add(entry)

    def _empty(self) -> None:
        """Forget everything after the first entry."""
        self.taker = ""
        self.cancelled = False
        self.cancelled_at = 0.0
        self.attempts = 0
        self.resumes = 0.0
        self.outcome: Outcome = "running"
        self.free = False
        self._end = b""
        self._cut = False
        self._begun = self._left = False
        self.part_count = self.taken = 0
        self.origin: StreamOrigin | None = None
        self._parts: list[bytes] = []

    def add(self, entry: Entry) -> None:
        """Note one more entry. Skip entries that none of our programs can have written."""
        first, self.position = not self.position, entry.position
        kind = kind_of(entry)
        self.size += len(entry.body)
        if first:
            self._begin(kind, entry)
        elif self.free and kind == HEAD and entry.properties.get(_KEY) == self.owner:
            self._empty()
            self._begin(kind, entry)
        elif kind in {LEFT, FREED} and not is_late(entry, self.claim):
            self._left = True
            self.free = self.free or (kind == FREED and self.outcome != "running")
        # Nothing after an end counts: if two writers each appended one, all readers use the first.
        elif self.owner is not None and self.outcome == "running":
            if kind in {ASKED, RETURNED}:
                self._pass_on(kind, entry)
            elif kind == QUEUED:
                # Its service is asked: from now on silence means something.
                self.waits = None
            # A gateway wrongly declared dead learns only later that another one took over the response.
            elif entry.properties.get(_BY, self.taker) == self.taker:
                self._add_of_taker(kind, entry)

    def _add_of_taker(self, kind: str, entry: Entry) -> None:
        if is_late(entry, self.claim):
            return
        if kind == PART:
            self._add_part(entry)
        elif kind == BEGUN:
            self._begun = True
            self._parts.append(BEGUN_LINES)
        elif kind == CANCEL:
            self.cancelled = True
            self.cancelled_at = self.cancelled_at or _read_number(entry, _AT, 0.0)
        elif kind == END:
            self._finish(entry)

    def take_parts(self) -> list[bytes]:
        """The parts added since the last call."""
        parts, self._parts = self._parts, []
        return parts

    @property
    def waiting(self) -> bool:
        """Whether no process makes it, so that silence means nothing."""
        return self.waits is not None and not self.taker and self.outcome == "running"

    @property
    def empty(self) -> bool:
        """Whether nothing of the answer was written."""
        return not (self.part_count or self._cut)

    @property
    def repeatable(self) -> bool:
        """Whether a model may be asked again if the taker is lost: the client permits it, and has read nothing."""
        lives = self.outcome == "running" and not self.cancelled
        return lives and bool(self.taker) and self.empty and self.attempts < self._max_attempts

    def label_loss(self, outcome: Outcome) -> Mapping[str, str]:
        """The properties of the end that a reader appends if the writer is lost, or none has come in time."""
        # A chosen name is free if nothing of the answer was sent: its head may come from an append that seemed to fail.
        frees = bool(self.claim) and self.empty
        # Signed even if nobody makes it: if another process does from now on, this end does not count.
        return label_end(outcome, claim=self.claim, frees=frees, by=self.taker)

    @property
    def overdue(self) -> Outcome:
        """How the answer ends if it waits too long."""
        return "died" if self.attempts else "expired"

    def is_expired(self, now: float) -> bool:
        """Whether it has waited too long."""
        # Not `<=`: "nan" reads as a number too.
        return self.waiting and self.waits is not None and not self.waits > now

    def drop_bodies(self) -> None:
        """Release the bodies of the entries; everything else stays known."""
        self._head, self._parts, self._end = None, [], b""

    @property
    def answer(self) -> KeptAnswer:
        """The answer as it is now."""
        begun = self._begun or self.outcome == "ended"
        return KeptAnswer(self._head, self._end, self.outcome, self._cut, begun, self._left)

    def _begin(self, kind: str, entry: Entry) -> None:
        if kind not in {WHOLE, HEAD}:
            return
        self.owner = entry.properties.get(_KEY)
        self.claim = claim_of(entry)
        self.expires = _read_number(entry, _EXPIRES, 0.0)
        self.waits = _read_number(entry, _WAITS, 0.0) if _WAITS in entry.properties else None
        self._max_attempts = _read_number(entry, _ATTEMPTS, 1.0)
        if kind == HEAD:
            self._head = entry.body
        else:
            self._end, self.outcome = entry.body, "ended"

    def _pass_on(self, kind: str, entry: Entry) -> None:
        """The first of several processes that ask for the answer has it: only that one asks a model or returns it."""
        properties, claim = entry.properties, claim_of(entry)
        if kind == ASKED and claim and properties.get(_OVER, "") == self.taker:
            # Who has it from another one goes on there.
            self.attempts += not self.taker
            self.taker, self.origin = claim, _read_origin(entry)
        elif kind == RETURNED and claim and claim == self.taker:
            spent = _SPENT in properties
            self.attempts -= not spent
            self.resumes = _read_number(entry, _RESUMES, 0.0)
            self.taker, self.origin, self._begun = "", None, False

    def _add_part(self, entry: Entry) -> None:
        number = _read_number(entry, _NUMBER, -1.0)
        # A broker may have stored a part twice. If a part is missing, the rest is useless.
        if number == self.part_count and not self._cut:
            self._parts.append(entry.body)
            self.part_count += 1
            self.taken = int(_read_number(entry, _TAKEN, 0.0))
        # `not <` and not `>=`: "nan" reads as a number too.
        elif not number < self.part_count:
            self._cut = True

    def _finish(self, entry: Entry) -> None:
        outcome = entry.properties.get(_OUTCOME, "")
        self.outcome = cast("Outcome", outcome) if outcome in _OUTCOMES - {"running"} else "died"
        self._end = entry.body
        self._cut = self._cut or _CUT in entry.properties
        self.free = _FREE in entry.properties


def _read_origin(entry: Entry) -> StreamOrigin | None:
    stream, attempt, processor = (entry.properties.get(name, "") for name in _ORIGIN)
    return StreamOrigin(stream, int(attempt), processor) if attempt.isdecimal() and stream and processor else None


def _read_number(entry: Entry, name: str, otherwise: float) -> float:
    """A number of the properties; `otherwise` if it is none."""
    try:
        return float(entry.properties.get(name, ""))
    except ValueError:
        return otherwise


async def erase_remnant(bus: Bus, topic: str) -> None:
    """Erase a log that has lost its first entry.

    Call it after appending to a log that somebody may have erased meanwhile.
    Either the other erasure came after the append, and covers it, or the log is found here without its first entry.

    Raises:
        BusError: the bus did not answer.
    """
    entries = await bus.read(topic)
    if entries and JobLog(entries[:1]).owner is None:
        await bus.erase(topic)
