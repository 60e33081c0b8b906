"""Published messages -> broken promises: what can be seen on the wire alone, whatever becomes of the streams."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from tests.simulation.ledger import Stream
from tests.simulation.scripted_model import Generation
from tests.simulation.simulated_process import SimulatedProcess
from tests.simulation.themes import MODELS
from tg_base.protocol import CONTROL, Frame, Heartbeat, StreamKey
from tg_schema import decode
from tg_schema.topics import Topics

if TYPE_CHECKING:
    from tests.simulation.world import World

WINDOW_MESSAGES: Final = 256
WINDOW_BYTES: Final = 16 * 1024 * 1024
"""What of a link may be unacknowledged when another message of it leaves. Not the code's figures: they may be wrong."""
HEARD: Final = 0.6
"""Seconds in which a process hears that a request is not wanted any more, from any distance of these worlds."""
FORGOTTEN: Final = 3.5
"""Seconds after which a model does not begin it, whatever goes wrong: a confirmation is no longer valid by then."""
KNOWN: Final = 2.5
"""Second from which on all processes know each other."""
GIVEN_BACK: Final = 0.3
"""Seconds between the end of a generation and the word that its request is handed back."""
_NAME: Final = re.compile(rb"name=(\w+) ")
_CONTROL: Final = Topics().control("")
_HEARTBEAT: Final = b'{"type":"heartbeat"'


@dataclass(eq=False)
class _Sent:
    """An attempt that was asked for: which request it is of, and when."""

    name: str
    time: float


@dataclass(eq=False)
class _Window:
    """What of a link was published and, as far as its requestor has said, not received."""

    sizes: dict[int, int] = field(default_factory=dict)
    bytes: int = 0

    def acknowledge(self, seq: int) -> None:
        for received in [one for one in self.sizes if one <= seq]:
            self.bytes -= self.sizes.pop(received)


class Wiretap:
    """Listens to every process of a world.

    Args:
        world: the world.
    """

    def __init__(self, world: "World") -> None:
        self._world = world
        self._simulator = world.simulator
        self._ledger = world.ledger
        self._links: dict[tuple[str, int], bytes] = {}
        self._windows: dict[str, _Window] = {}
        self._sent: dict[tuple[str, int], _Sent] = {}

    def published(self, process: SimulatedProcess, topic: str, body: bytes, properties: Mapping[str, str]) -> None:
        """A process publishes a message."""
        if "link" in properties:
            self._on_link(process, properties["link"], int(properties["seq"]), body)
        elif "deadline" in properties:
            self._on_request(process, (properties["id"], int(properties["attempt"])), body)
        elif topic.startswith(_CONTROL) and body.startswith(_HEARTBEAT):
            heartbeat = cast("Heartbeat", decode(CONTROL, body))
            for link, ack in heartbeat.acks.items():
                if link in self._windows:
                    self._windows[link].acknowledge(ack.seq)

    def begun(self, generation: Generation) -> None:
        """A model begins to generate."""
        stream = self._over(generation.script.name)
        if stream is None:
            return
        late = self._simulator.now - stream.ended_at
        process = cast("SimulatedProcess", generation.process)
        # One that is suspended after it has asked learns of nothing.
        if (
            self._is_calm(stream, process)
            if late < FORGOTTEN
            else not self._world.calm.troubles(
                (process,), stream.ended_at, self._simulator.now, but=("weather", "broker", "refuse")
            )
        ):
            self._broken("begun-late", stream, f"{process.name} begins it")

    def _on_request(self, process: SimulatedProcess, key: tuple[str, int], body: bytes) -> None:
        if not body:
            asked = self._world.requestors[process]._streams[key[0]]
            body = asked.body
        found = _NAME.search(body)
        if found is not None:
            self._sent[key] = _Sent(found[1].decode(), self._simulator.now)

    def _on_link(self, process: SimulatedProcess, link: str, seq: int, body: bytes) -> None:
        before = self._links.setdefault((link, seq), body)
        if before != body:
            self._ledger.broken("link-number", f"message {seq} of link {link} is published with two bodies")
        window = self._windows.setdefault(link, _Window())
        # Again: it was known before, or is kept no longer.
        if before is not body or seq in window.sizes:
            return
        if len(window.sizes) >= WINDOW_MESSAGES or window.bytes >= WINDOW_BYTES:
            kept = f"{len(window.sizes)} messages of {window.bytes} bytes"
            self._ledger.broken("window", f"{process.name} sends on link {link}, which has not acknowledged {kept}")
        window.sizes[seq] = len(body)
        window.bytes += len(body)
        for frame in decode(list[Frame], body):
            if frame.kind in {"confirm", "fetch"}:
                self._on_question(process, frame)
            elif frame.kind == "returned":
                self._on_returned(process, frame)

    def _on_question(self, process: SimulatedProcess, frame: Frame) -> None:
        sent = self._sent.get((frame.stream, frame.attempt))
        stream = None if sent is None else self._over(sent.name)
        if stream is not None and self._is_calm(stream, process):
            self._broken("asked-late", stream, f"{process.name} asks whether to begin it")

    def _on_returned(self, process: SimulatedProcess, frame: Frame) -> None:
        sent = self._sent.get((frame.stream, frame.attempt))
        if sent is None:
            return
        for one in self._ledger.generations[sent.name]:
            recent = one.open or self._simulator.now - one.alive_until < GIVEN_BACK
            # Another attempt may be begun already while what was said of this one waits for the broker.
            same = one.key == StreamKey(frame.stream, frame.attempt)
            if one.process is process and one.begun >= sent.time and recent and same:
                self._ledger.broken("begun-returned", f"{process.name} hands {sent.name} back, which it has begun")

    def _over(self, name: str) -> Stream | None:
        """The stream of that name, where its caller waits no more; only one that asks a model itself."""
        stream = self._ledger.streams.get(name)
        if stream is None or stream.ended in {None, "dead"} or stream.asked.kind not in MODELS:
            return None
        return stream if self._simulator.now - stream.ended_at > HEARD else None

    def _is_calm(self, stream: Stream, process: SimulatedProcess) -> bool:
        since = stream.ended_at
        return since > KNOWN and self._world.calm.holds((stream.process, process), since, self._simulator.now)

    def _broken(self, promise: str, stream: Stream, what: str) -> None:
        late = self._simulator.now - stream.ended_at
        self._ledger.broken(promise, f"{what} {late:.2f} s after {stream.asked.script.name} ended as {stream.ended}")
