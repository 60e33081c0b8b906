"""Entries of one log -> the answer that they hold: whole, or still being made.

An answer that was kept at its end is one entry. An answer in the background consists of a head, parts, a note that a
processor works on it, signs of life, perhaps a request to stop, and an end. An answer that waits also has notes: which
gateway has taken it, is about to ask a model, has returned it because no model worked on it, or was lost while a model
did. Of several ends, the first counts for every reader: the writer, and readers that took it for dead, may each append
one. An end may free the name; then the next head restarts the log.
"""

from collections.abc import Mapping
from typing import Final, cast, get_args

from tg_base.bus import Bus, Entry
from tg_base.client import StreamOrigin
from tg_gateway.dialects import BEGUN_LINES, KeptAnswer, Outcome
from tg_schema.errors import BadRequest

WHOLE, HEAD, PART, ALIVE, BEGUN, CANCEL, END = "", "head", "records", "alive", "begun", "cancel", "end"
TAKEN, ASKED, RETURNED, LOST = "taken", "asked", "returned", "lost"
"""The kinds of entries."""
_RENDERED: Final = "part"
"""The kind of a part that the version before has written, as its dialect shows it."""
_RECORDED: Final = "recorded"
"""The outcome "ended" of an answer of records: for the version before, which cannot show them, it has died."""

_KEY: Final = "key"
_EXPIRES: Final = "expires"
_CLAIM: Final = "claim"
_OVER: Final = "over"
_ASKS: Final = "asks"
_ADOPTS: Final = "adopts"
_TAKEN: Final = "taken"
_ORIGIN: Final = ("stream", "attempt", "processor")
_WAITS: Final = "waits"
_ATTEMPTS: Final = "attempts"
_BY: Final = "by"
_BEHIND: Final = "behind"
_SPENT: Final = "spent"
_RESUMES: Final = "resumes"
_KIND: Final = "kind"
_NUMBER: Final = "number"
_OUTCOME: Final = "outcome"
_CUT: Final = "cut"
_FREE: Final = "free"
_CAREFUL: Final = {"tells": "1", "signs": "1"}
"""What the version before needs to know: that this gateway logs when it asks a model, and signs its entries."""
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


def label_part(number: int, by: str = "", claim: str = "", taken: int = 0) -> Mapping[str, str]:
    """The properties of a part.

    Args:
        number: they are numbered from 0.
        by: as of an end.
        claim: as of an end.
        taken: frames of the answer that the parts up to this one have, as `ResponseStream.taken`.
    """
    return {_KIND: PART, _NUMBER: str(number), **_sign(by, claim)} | ({_TAKEN: str(taken)} if taken else {})


def label_begun(by: str = "", claim: str = "", origin: StreamOrigin | None = None) -> Mapping[str, str]:
    """The properties of a note that a processor works on the answer. `by` and `claim`: as of an end.

    `origin`: where another process may adopt it; None = nowhere.
    """
    place = {} if origin is None else dict(zip(_ORIGIN, map(str, origin), strict=True))
    return {_KIND: BEGUN, **_sign(by, claim), **place}


def label_end(
    outcome: Outcome, *, cut: bool = False, claim: str = "", frees: bool = False, by: str = ""
) -> Mapping[str, str]:
    """The properties of the end.

    Args:
        outcome: the answer's state.
        cut: whether some of its parts are missing.
        claim: the claim of the head that it ends, so that it cannot end a later one; "" = that head has none.
        frees: whether the next head restarts the log.
        by: the claim of the gateway that made an answer that waited; the end does not count if another gateway has it;
            "" = it counts.
    """
    own = _sign(by, claim)
    told = _RECORDED if outcome == "ended" else outcome
    return {_KIND: END, _OUTCOME: told} | own | ({_CUT: "1"} if cut else {}) | ({_FREE: "1"} if frees else {})


def label_taken(claim: str, over: str = "", *, asks: bool = False, adopts: bool = False) -> Mapping[str, str]:
    """The properties of a note that a gateway takes the answer, and will log it before it asks a model.

    Args:
        claim: of that gateway.
        over: the claim that it replaces, unless a model may have been asked under that one before this note.
        asks: whether this note says as well that it asks.
        adopts: whether it reads on in the answer of the replaced one, whose model goes on.
    """
    own = {_KIND: TAKEN, _CLAIM: claim, **_CAREFUL}
    return own | ({_OVER: over} if over else {}) | ({_ASKS: "1"} if asks else {}) | ({_ADOPTS: "1"} if adopts else {})


def label_returned(claim: str, resumes: float | None = None) -> Mapping[str, str]:
    """The properties of a note that the answer waits again.

    Args:
        claim: of who had taken it.
        resumes: a model may have been asked for it, so that one attempt is used: when the next one may begin (wall
            clock). None = no attempt is used.
    """
    return {_KIND: RETURNED, _CLAIM: claim} | ({} if resumes is None else {_SPENT: "1", _RESUMES: str(resumes)})


def label_lost(claim: str, behind: str, resumes: float = 0.0) -> Mapping[str, str]:
    """The properties of a note that the taker is silent, so the answer waits again with one attempt used.

    Args:
        claim: of the silent gateway.
        behind: the position of the last entry that was read; the note is void if another entry follows that one.
        resumes: when the next attempt may begin (wall clock).
    """
    return {_KIND: LOST, _CLAIM: claim, _BEHIND: behind, _RESUMES: str(resumes)}


def label_claim(kind: str, claim: str) -> Mapping[str, str]:
    """The properties of a note by the gateway that has the answer. `CANCEL`: the claim of the head that is meant."""
    return {_KIND: kind, _CLAIM: claim}


def label(kind: str, by: str = "", claim: str = "") -> Mapping[str, str]:
    """The properties of an entry that says nothing else. `by` and `claim`: as of an end."""
    return {_KIND: kind} | _sign(by, claim)


def _sign(by: str, claim: str) -> dict[str, str]:
    return ({_CLAIM: claim} if claim else {}) | ({_BY: by} if by else {})


def is_late(entry: Entry, claim: str) -> bool:
    """Whether the entry belongs to a different owner's claim.

    A bus may store an end twice, a reader may write one while the name is freed and reused, and a gateway wrongly
    declared dead may go on.
    """
    return kind_of(entry) in {PART, BEGUN, CANCEL, END} and entry.properties.get(_CLAIM, claim) != claim


def kind_of(entry: Entry) -> str:
    """Which kind an entry is."""
    return entry.properties.get(_KIND, WHOLE)


class NameTaken(BadRequest):
    """An answer of this chosen name is kept, or is being made.

    Args:
        field: the request's field from which the name is made.
    """

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
        waits: until when it may wait for capacity, by the wall clock; None = it never waited.
        taker: for an answer that has waited, the claim of the gateway that took it; "" = none.
        asked: whether the taker has logged that it asks a model.
        attempts: how many were begun, without those in which no model was asked.
        lost: whether the last attempt was lost, and no gateway has taken it since.
        again: whether the taker follows a gateway that was lost, during its attempt or before it could ask.
        resumes: after a lost attempt, when the next one may begin, by the wall clock.
        cancelled: whether a client has cancelled it.
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
        self.asked = self.lost = self.again = self.cancelled = False
        self.attempts = 0
        self.resumes = 0.0
        self.outcome: Outcome = "running"
        self.free = False
        self._end = b""
        self._cut = self._rendered = False
        self._begun = False
        # Whether anything of the answer was written.
        self._told = False
        self.part_count = self.taken = 0
        self.origin: StreamOrigin | None = None
        self._parts: list[bytes] = []

    def add(self, entry: Entry) -> None:
        """Note one more entry. Skip entries that none of our programs can have written."""
        first, behind, self.position = not self.position, self.position, entry.position
        kind = kind_of(entry)
        self.size += len(entry.body)
        if first:
            self._begin(kind, entry)
        elif self.free and kind == HEAD and entry.properties.get(_KEY) == self.owner:
            self._empty()
            self._begin(kind, entry)
        # Nothing after an end counts: if two writers each appended one, all readers use the first.
        elif self.owner is not None and self.outcome == "running":
            if kind in {TAKEN, ASKED, RETURNED, LOST}:
                self._pass_on(kind, entry, behind)
            # A gateway wrongly declared dead learns only later that another one took over the response.
            elif entry.properties.get(_BY, self.taker) == self.taker:
                self._add_of_taker(kind, entry)

    def _add_of_taker(self, kind: str, entry: Entry) -> None:
        if is_late(entry, self.claim):
            return
        if kind == PART:
            self._add_part(entry)
        elif kind == _RENDERED:
            self._told = self._cut = True
        elif kind == BEGUN:
            self._begun = True
            self._parts.append(BEGUN_LINES)
            self.origin = _read_origin(entry)
        elif kind == CANCEL:
            self.cancelled = True
        elif kind == END:
            self._finish(entry)

    def take_parts(self) -> list[bytes]:
        """The parts added since the last call."""
        parts, self._parts = self._parts, []
        return parts

    @property
    def waiting(self) -> bool:
        """Whether no model works on it, and its taker cannot have asked one, so that silence means nothing."""
        return self.waits is not None and not self.asked and self.outcome == "running"

    @property
    def repeatable(self) -> bool:
        """Whether a model may be asked again if the taker is lost: the client permits it, and has read nothing."""
        lives = self.outcome == "running" and not self.cancelled
        return lives and self.asked and not self._told and self.attempts < self._max_attempts

    def label_death(self) -> Mapping[str, str]:
        """The properties of the end that a reader appends if the writer is lost, and no gateway asks again."""
        # A chosen name is free if nothing of the answer was sent: its head may come from an append that seemed to fail.
        frees = bool(self.claim) and not (self.part_count or self._cut)
        # Signed with its taker: if that gateway has returned the response meanwhile, this end does not count.
        return label_end("died", claim=self.claim, frees=frees, by=self.taker)

    def label_expiry(self) -> Mapping[str, str]:
        """The properties of the end that a reader appends if the answer waits too long."""
        # Signed even if no gateway has it: if one takes it meanwhile, it may ask a model, and this end does not count.
        return {**label_end(self.overdue, claim=self.claim), _BY: self.taker}

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
        return KeptAnswer(self._head, self._end, self.outcome, self._cut, begun, self._rendered)

    def _begin(self, kind: str, entry: Entry) -> None:
        if kind not in {WHOLE, HEAD}:
            return
        self.owner = entry.properties.get(_KEY)
        self.claim = entry.properties.get(_CLAIM, "")
        self.expires = _read_number(entry, _EXPIRES, 0.0)
        self.waits = _read_number(entry, _WAITS, 0.0) if _WAITS in entry.properties else None
        self._max_attempts = _read_number(entry, _ATTEMPTS, 1.0)
        if kind == HEAD:
            self._head = entry.body
        else:
            self._end, self.outcome = entry.body, "ended"

    def _pass_on(self, kind: str, entry: Entry, behind: str) -> None:
        """The first of several gateways that take the answer owns it: only that one asks a model or returns it."""
        properties, claim = entry.properties, entry.properties.get(_CLAIM, "")
        adopts = _ADOPTS in properties and self.origin is not None
        replaces = properties.get(_OVER) == self.taker and (adopts or not self.asked)
        if kind == TAKEN and (not self.taker or replaces):
            self.again, self.lost, self.asked = self.lost or bool(self.taker), False, _ASKS in properties
            self.attempts += self.asked and not adopts
            self.taker = claim
        elif not claim or claim != self.taker:
            return
        elif kind == ASKED:
            self.attempts += not self.asked
            self.asked = True
        elif kind == RETURNED:
            self._let_go(entry, spent=_SPENT in properties)
        elif kind == LOST and self.repeatable and properties.get(_BEHIND) == behind:
            self._let_go(entry, spent=True)

    def _let_go(self, entry: Entry, *, spent: bool) -> None:
        self.attempts -= self.asked and not spent
        self.lost, self.resumes = spent, _read_number(entry, _RESUMES, 0.0)
        self.taker, self.asked, self._begun = "", False, False

    def _add_part(self, entry: Entry) -> None:
        # Ignore entries before any gateway has taken it.
        self._told = self._told or bool(self.taker)
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
        self._rendered = outcome == "ended"
        outcome = "ended" if outcome == _RECORDED else outcome
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
