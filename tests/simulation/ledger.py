"""World -> what happened: who asked what, what was shown, what was paid for; and which promises were broken."""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.simulation.scenario_terms import Asked
from tests.simulation.scripted_model import Generation, Script
from tests.simulation.simulated_process import SimulatedProcess
from tests.simulation.simulator import Simulator
from tg_base.protocol import StreamKey

TWIN = 0.3
"""Seconds between two begins of one attempt whose requests were young when they came, whatever their ways took."""


@dataclass(frozen=True)
class Violation:
    """A broken promise.

    Attributes:
        promise: its name, one of those in tests/simulation/README.md.
        text: what happened.
        time: when it was noticed.
    """

    promise: str
    text: str
    time: float


@dataclass(eq=False)
class Stream:
    """What one caller saw.

    Attributes:
        asked: the request.
        process: the gateway.
        life: which of its lives.
        began: when it was asked, in the simulator's seconds.
        shown: the text so far.
        inbox: the topic on which its gateway gets answers.
        sign: when something of it was shown or begun last; later, where it was given to a dead process.
        ended: how; None = not yet. "whole", "left", "dead" (with its process), or an error's type.
    """

    asked: Asked
    process: SimulatedProcess
    life: int
    began: float
    inbox: str
    shown: str = ""
    sign: float = 0.0
    ended: str | None = None
    ended_at: float = 0.0
    message: str = ""


@dataclass(eq=False)
class Load:
    """How busy a process's model is.

    Attributes:
        capacity: how many requests it works on at once.
        open: which it works on.
        full_at: when it was last full.
        began_at: by flow, when it last began a request: those behind it in the queue wait for their turn.
    """

    capacity: int
    open: set[Generation] = field(default_factory=set)
    full_at: float = 0.0
    began_at: dict[str, float] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """Note whether it is full now, or was since the last look: an answer may take less time than lies between."""
        if len(self.open) >= self.capacity:
            self.full_at = min((one.alive_until for one in self.open if not one.open), default=now)
        self.open = {one for one in self.open if one.open}


class Ledger:
    """Everything that is observed from outside of the code.

    Attributes:
        streams: by the request's name.
        generations: by the request's name.
        violations: what was broken, in the order in which it was noticed.
        recorded: the numbers of the calls of each attempt of which the broker has a record of usage.
    """

    def __init__(self, simulator: Simulator) -> None:
        self.streams: dict[str, Stream] = {}
        self.generations: defaultdict[str, list[Generation]] = defaultdict(list)
        self.violations: list[Violation] = []
        self.recorded: defaultdict[StreamKey, set[int]] = defaultdict(set)
        self._simulator = simulator

    def broken(self, promise: str, text: str) -> None:
        """A promise is broken."""
        self._simulator.note("BROKEN", promise, text)
        self.violations.append(Violation(promise, text, self._simulator.now))

    def ask(self, asked: Asked, process: SimulatedProcess, inbox: str) -> Stream:
        """A caller asks."""
        now = self._simulator.now
        self._simulator.note(process.name, "asks", asked)
        stream = self.streams[asked.script.name] = Stream(asked, process, process.lives, now, inbox, sign=now)
        return stream

    def begin(self, process: SimulatedProcess, script: Script, turn: str, control: str, key: StreamKey) -> Generation:
        """A model begins to generate."""
        earlier = [one for one in self.generations[script.name] if one.turn == turn]
        now = self._simulator.now
        generation = Generation(script, len(self.generations[script.name]), process, turn, now, now, control, key)
        self.generations[script.name].append(generation)
        self._simulator.note(process.name, "generates", f"{script.name}g{generation.number}", turn)
        stream = self.streams.get(script.name)
        if stream is not None:
            stream.sign = max(stream.sign, now)
            if earlier and stream.asked.permit:
                self.broken("begun-twice", f"{script.name} is generated again")
            # What comes twice within so short a time, to two processes, nobody can tell (docs/promises.md).
            twin = bool(earlier) and earlier[-1].process is not process and now - earlier[-1].begun < TWIN
            if earlier and stream.shown and not turn and not twin:
                self.broken("paid-twice", f"{script.name} is generated again after {stream.shown!r} was shown")
        return generation

    def show(self, stream: Stream, text: str) -> None:
        """A caller got more of an answer."""
        name = stream.asked.script.name
        stream.shown += text
        stream.sign = max(stream.sign, self._simulator.now)
        self._simulator.note(stream.process.name, "shows", name, text[:80])
        if stream.ended is not None:
            self.broken("one-end", f"{name} goes on after its end with {text[:80]!r}")
        texts = [one.script.text(one.number) for one in self.generations[name]]
        if not any(one.startswith(stream.shown.rstrip()) for one in texts):
            self.broken("prefix", f"{name} shows {stream.shown[-200:]!r}, which no model has said")

    def end(self, stream: Stream, how: str, message: str = "") -> None:
        """A caller's stream has ended."""
        name = stream.asked.script.name
        self._simulator.note(stream.process.name, "ends", name, how, message)
        if stream.ended is not None:
            self.broken("one-end", f"{name} ends as {how} after it ended as {stream.ended}")
        stream.ended, stream.message, stream.ended_at = how, message, self._simulator.now
        texts = [one.script.text(one.number).rstrip() for one in self.generations[name]]
        if how == "whole" and stream.shown.rstrip() not in texts:
            self.broken("prefix", f"{name} ends well although only {stream.shown[-200:]!r} was shown")
