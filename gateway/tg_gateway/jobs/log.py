"""Entries of one log -> its state, as the package's docstring draws it, and the answer, as far as it is made.

An answer that was kept at its end has one entry, the end, with the properties of a head too. The properties are:

    head     key, expires, waits, attempts: of the answer. claim: its own; over: of the head that it replaces.
    maker    claim: of the process; over: of the maker that it replaces. stream, attempt, processor: where it asks.
             Without a claim nobody makes the answer; resumes: an attempt was used, and the next one begins then.
    others   claim: of the head, and by: of the maker. If one of them is not the current one, the entry is void.
    records  number: 0, 1, ...; taken: frames of the answer up to here.
    cancel   at: when it came.
    end      outcome; cut: parts are missing; free: any request may replace the answer.
"""

from collections.abc import Mapping
from typing import Final, cast, get_args

from tg_base.bus import Bus, Entry
from tg_base.client import StreamOrigin
from tg_gateway.dialects import BEGUN_LINES, KeptAnswer, Outcome
from tg_schema.errors import BadRequest

HEAD, QUEUED, MAKER, BEGUN, PART, END = "head", "queued", "maker", "begun", "records", "end"
ALIVE, CANCEL, LEFT = "alive", "cancel", "left"
"""The kinds of entries."""

_KIND, _CLAIM, _OVER, _BY = "kind", "claim", "over", "by"
_KEY, _EXPIRES, _WAITS, _ATTEMPTS, _RESUMES = "key", "expires", "waits", "attempts", "resumes"
_NUMBER, _TAKEN, _AT, _OUTCOME, _CUT, _FREE = "number", "taken", "at", "outcome", "cut", "free"
_ORIGIN: Final = ("stream", "attempt", "processor")
"""Properties of entries."""
_OUTCOMES: Final = frozenset(get_args(Outcome))


def label_first(
    kind: str,
    owner: str,
    expires: float,
    claim: str = "",
    waits: float | None = None,
    *,
    attempts: int = 1,
    over: str = "",
) -> Mapping[str, str]:
    """The properties of the first entry: whose answer it is, and until when (wall clock).

    Args:
        kind: `HEAD`, or `END` of an answer that is kept at its end.
        owner: whose it is.
        expires: until when.
        claim: distinguishes it from heads that others write at the same time.
        waits: until when it may wait for room (wall clock); None = it does not.
        attempts: how often a model may be asked for one that waits.
        over: the claim of the ended answer that it replaces; "" = the log has none.
    """
    waiting = {} if waits is None else {_WAITS: str(waits)}
    repeats = {_ATTEMPTS: str(attempts)} if attempts > 1 else {}
    first = {_KIND: kind, _KEY: owner, _EXPIRES: str(expires)} | waiting | repeats
    return first | ({_CLAIM: claim} if claim else {}) | ({_OVER: over} if over else {})


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
        frees: whether any request may replace the answer.
        by: the claim of the maker that writes the end; "" = the answer has no maker. If the log names another maker,
            the end is void. None = the end counts with any maker.
    """
    notes = ({_CUT: "1"} if cut else {}) | ({_FREE: "1"} if frees else {})
    return {**label(END, by, claim), _OUTCOME: outcome} | notes


def label_asked(claim: str, over: str = "", origin: StreamOrigin | None = None) -> Mapping[str, str]:
    """The properties of a note that a process makes the answer: a model may be asked once this is in the log.

    Args:
        claim: of that process.
        over: the claim that it replaces; the note is void if another one has the answer.
        origin: where another process may adopt the answer; None = nowhere.
    """
    place = {} if origin is None else dict(zip(_ORIGIN, map(str, origin), strict=True))
    return {_KIND: MAKER, _CLAIM: claim, _OVER: over, **place}


def label_returned(claim: str, resumes: float | None = None) -> Mapping[str, str]:
    """The properties of a note that nobody makes the answer now, so that it waits again.

    Args:
        claim: of the process that has made it.
        resumes: a model may have been asked for it, so that one attempt is used: when the next one may begin (wall
            clock). None = no attempt is used.
    """
    return {_KIND: MAKER, _OVER: claim} | ({} if resumes is None else {_RESUMES: str(resumes)})


def label_cancel(at: float) -> Mapping[str, str]:
    """The properties of a request to stop that says when it came (wall clock)."""
    return {**label(CANCEL), _AT: str(at)}


def label(kind: str, by: str | None = None, claim: str = "") -> Mapping[str, str]:
    """The properties of an entry that says nothing else. `by` and `claim`: as of an end."""
    return {_KIND: kind} | ({_CLAIM: claim} if claim else {}) | ({} if by is None else {_BY: by})


def is_late(entry: Entry, claim: str) -> bool:
    """Whether the entry is about an answer that another head has begun.

    A bus may store an end twice, a reader may write one while the name is freed and reused, and a gateway wrongly
    declared dead may go on.
    """
    return kind_of(entry) in {PART, BEGUN, CANCEL, END, LEFT} and entry.properties.get(_CLAIM, claim) != claim


def kind_of(entry: Entry) -> str:
    """Which kind an entry is."""
    return entry.properties.get(_KIND, "")


def claim_of(entry: Entry) -> str:
    """The claim that an entry is about; "" = none."""
    return entry.properties.get(_CLAIM, "")


class NameTaken(BadRequest):
    """Another answer has this name, and the request may not join it.

    Args:
        field: the request's field from which the name is made.
    """

    status = 409

    def __init__(self, field: str = "name") -> None:
        super().__init__(
            f"{field}: the answer to another request is kept already under this value: read that one, or take another"
        )


class JobLog:
    """The state of an answer, from the entries added so far.

    Attributes:
        owner: whose answer it is; None if there is none, or a stranger wrote to the log.
        expires: when it ends, by the wall clock; long ago if that cannot be read.
        claim: the claim of its first entry.
        waits: until when it may wait for a process that makes it, by the wall clock; None = none does.
        maker: the claim of the process that makes it; "" = none.
        resumes: after a lost attempt, when the next one may begin, by the wall clock.
        cancelled: whether a client has cancelled it.
        cancelled_at: when it first did so, by the wall clock; 0 = not stated.
        outcome: its state.
        position: the position of the last entry.
        free: whether any request may replace it.
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
        self.maker = ""
        self.cancelled = False
        self.cancelled_at = 0.0
        self.resumes = 0.0
        self._spent = 0
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
        elif kind == HEAD:
            # Of several heads over an answer that has ended, the first counts.
            over = self.outcome != "running" and entry.properties.get(_OVER) == self.claim
            if over and entry.properties.get(_KEY) == self.owner:
                self._empty()
                self._begin(kind, entry)
        elif kind == LEFT:
            self._left = self._left or not is_late(entry, self.claim)
        # Nothing after an end counts: if two writers each appended one, all readers use the first.
        elif self.owner is not None and self.outcome == "running":
            if kind == MAKER:
                self._pass_on(entry)
            elif kind == QUEUED:
                # Its service is asked: from now on silence means something.
                self.waits = None
            # A gateway wrongly declared dead learns only later that another one took over the response.
            elif entry.properties.get(_BY, self.maker) == self.maker:
                self._add_of_maker(kind, entry)

    def _add_of_maker(self, kind: str, entry: Entry) -> None:
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
    def attempts(self) -> int:
        """How many were begun, without those in which no model was asked."""
        return self._spent + bool(self.maker)

    @property
    def waiting(self) -> bool:
        """Whether no process makes it, so that silence means nothing."""
        return self.waits is not None and not self.maker and self.outcome == "running"

    @property
    def empty(self) -> bool:
        """Whether nothing of the answer was written."""
        return not (self.part_count or self._cut)

    @property
    def repeatable(self) -> bool:
        """Whether a model may be asked again if the maker is lost: the client permits it, and has read nothing."""
        lives = self.outcome == "running" and not self.cancelled
        return lives and bool(self.maker) and self.empty and self.attempts < self._max_attempts

    def label_loss(self) -> Mapping[str, str]:
        """The properties of the end that a reader appends if the writer is lost, or none has come in time."""
        # A chosen name is free if nothing of the answer was sent: its head may come from an append that seemed to fail.
        frees = bool(self.claim) and self.empty
        outcome: Outcome = "expired" if self.waiting and not self.attempts else "died"
        # Signed even if nobody makes it: if another process does from now on, this end does not count.
        return label_end(outcome, claim=self.claim, frees=frees, by=self.maker)

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
        if kind not in {HEAD, END}:
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

    def _pass_on(self, entry: Entry) -> None:
        """The first of several processes that ask for the answer has it: only that one asks a model or returns it."""
        if entry.properties.get(_OVER, "") != self.maker:
            return
        self.maker = claim_of(entry)
        self.origin = _read_origin(entry) if self.maker else None
        if not self.maker:
            self._begun = False
            self._spent += _RESUMES in entry.properties
            self.resumes = _read_number(entry, _RESUMES, 0.0)

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
