"""Schedulers <-> scheduler: pickers that know each other's placements, so that many pick like one.

A scheduler publishes its placements in small batches, and the others count those like their own requests. No pick
waits for that: it uses what is known now. A request belongs to the scheduler that placed it, and ends with it. But
knowledge of the servers' adapters and prompt prefixes outlives the scheduler that gained it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tg_picker.core.interface import NO_FINGERPRINT, Endpoint, Fingerprint, InstanceRequest
from tg_picker.core.peers.delta import (
    MAX_DELTA_BYTES,
    MAX_PLACED,
    Ask,
    BadDelta,
    Batch,
    Delta,
    Heartbeat,
    Known,
    Placed,
    Snapshot,
    Want,
    decode_delta,
    encode_delta,
    is_sendable,
    pack_blocks,
    unpack_blocks,
)
from tg_picker.core.peers.journal import Journal
from tg_picker.core.peers.peer_state import PeerState
from tg_picker.core.policies import Scheduler
from tg_picker.core.state import MAX_ADAPTERS, Placement, ServerState

MAX_PEERS = 256
MAX_ADOPTED = 10 * MAX_PLACED
"""Most requests of all other schedulers together."""
MAX_WANTS = 64
"""Most unknown prompt prefixes that are asked for at a time."""
MAX_ANSWERS = 8
"""Most questions for prefixes that are answered at a time."""
MAX_SHARED_BLOCKS = 65_536
"""Most blocks that a new scheduler is sent, for all servers together: half a megabyte."""


@dataclass(frozen=True, slots=True)
class SharingTiming:
    """Timing of messages, all in seconds and above 0.

    Attributes:
        heartbeat: seconds between two messages of a scheduler that has no placements to publish.
        dead_after: a scheduler that is silent for longer counts as ended, and so do its requests.
        ask: seconds between two questions to one scheduler; four times this between two snapshots.
    """

    heartbeat: float = 1.0
    dead_after: float = 3.0
    ask: float = 1.0


DEFAULT_TIMING = SharingTiming()


class SharedState:
    """Publishes one scheduler's placements, and counts those that others publish. It belongs to the event loop.

    Args:
        scheduler: our scheduler.
        find: returns the server at an address; None = we have none there, so reports about it are dropped.
        origin: a random number for this process, so that it counts as another scheduler after a restart.
        wake: called when there is something new to publish.
        timing: the timing of heartbeats and questions.

    Attributes:
        dropped: messages and parts of messages that were dropped, by reason: `poison` (not a valid message, or one
            scheduler too many), `unknown-server`, `too-many` (requests), `too-long` (a message of our own).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        find: Callable[[str], Endpoint | None],
        origin: int,
        wake: Callable[[], None] = lambda: None,
        timing: SharingTiming = DEFAULT_TIMING,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._scheduler = scheduler
        self._find = find
        self._origin = origin
        self._wake = wake
        self._timing = timing
        self._journal = Journal(origin, wake)
        scheduler.followers.append(self._journal)
        self._peers: dict[int, PeerState] = {}
        self._wants: dict[Want, None] = {}
        self._answers: dict[tuple[str, int], None] = {}
        self._known_parts: Iterator[Known] = iter(())
        self._beat_at = self._snapshot_at = self._learnt_at = float("-inf")
        self._alone_at: float | None = None
        self._teacher = 0
        self._is_asked = self._has_learnt = False

    @property
    def peers(self) -> dict[int, int]:
        """The other schedulers, each with the number of its requests in flight on servers that we have too."""
        return {origin: len(peer) for origin, peer in self._peers.items()}

    def refresh(self) -> None:
        """Note that servers came or went, so ask all peers for a snapshot."""
        for peer in self._peers.values():
            peer.is_incomplete = True
        self._wake()

    def flush(self, now: float) -> list[bytes]:
        """The messages to publish now, in this order. Call it when woken, and at every heartbeat."""
        limit = now - self._timing.dead_after
        for origin in [origin for origin, peer in self._peers.items() if peer.received_at < limit]:
            self._peers.pop(origin).drop(now)
        self._rest_if_alone(now)
        deltas = [*self._own(now), *self._questions(now), *self._knowledge()]
        if any(isinstance(each, Batch) for each in deltas):
            self._beat_at = now
        elif now - self._beat_at >= self._timing.heartbeat:
            self._beat_at = now
            deltas.append(Heartbeat(self._origin, self._journal.seq))
        bodies = [encode_delta(each) for each in deltas]
        short = [body for body in bodies if len(body) <= MAX_DELTA_BYTES]
        self.dropped["too-long"] += len(bodies) - len(short)
        return short

    def _rest_if_alone(self, now: float) -> None:
        """Stop collecting when no other scheduler was heard for `dead_after`."""
        if self._peers:
            self._alone_at = None
        elif self._alone_at is None:
            self._alone_at = now
        elif now - self._alone_at > self._timing.dead_after:
            self._journal.rest()

    def receive(self, body: bytes, now: float) -> bool:
        """Apply a message. Messages may come in any order, and repeatedly. False: it was invalid and was dropped."""
        try:
            delta = decode_delta(body)
        except BadDelta:
            self.dropped["poison"] += 1
            return False
        if delta.origin == self._origin:
            return True
        peer = self._peers.get(delta.origin)
        if peer is None:
            if len(self._peers) >= MAX_PEERS:
                self.dropped["poison"] += 1
                return False
            peer = self._peers[delta.origin] = PeerState(partial(self._adopt, delta.origin), now)
            self._beat_at = float("-inf")  # send a heartbeat at once, so that it learns of us
            self._journal.resume()
            self._wake()
        peer.received_at = now
        self._take(delta, peer, now)
        if peer.is_behind:
            self._wake()
        return True

    def _take(self, delta: Delta, peer: PeerState, now: float) -> None:
        if isinstance(delta, Heartbeat):
            peer.hear(delta.seq)
        elif isinstance(delta, Batch):
            self._note_lacking(delta, now)
            if not peer.apply(delta, now):
                self._learn_prompts(delta)
        elif isinstance(delta, Snapshot):
            peer.replace(delta, now)
        elif isinstance(delta, Known):
            # This full answer may have been requested by another scheduler, and have begun before we listened.
            self._has_learnt |= delta.whole and delta.origin == self._teacher
            self._learn_server(delta, now)
        elif isinstance(delta, Ask | Want) and delta.target == self._origin:
            self._answer(delta)

    def _own(self, now: float) -> Iterator[Delta]:
        batch = self._journal.take()
        if batch is not None:
            yield batch
        if self._is_asked and now - self._snapshot_at >= self._timing.ask / 4:
            self._is_asked, self._snapshot_at = False, now
            yield self._journal.snapshot()

    def _questions(self, now: float) -> Iterator[Delta]:
        for origin, peer in self._peers.items():
            if peer.is_behind and now - peer.asked_at >= self._timing.ask:
                peer.asked_at = now
                yield Ask(self._origin, origin)
        # Ask the peers one after the other what they know of the servers, until one has answered fully.
        if self._peers and not self._has_learnt and now - self._learnt_at >= self._timing.ask:
            self._learnt_at = now
            self._teacher = next(iter(self._peers))
            self._peers[self._teacher] = self._peers.pop(self._teacher)
            yield Ask(self._origin, self._teacher, all_known=True)
        yield from self._wants
        self._wants.clear()

    def _knowledge(self) -> Iterator[Delta]:
        for address, block in [*self._answers][:MAX_ANSWERS]:
            del self._answers[address, block]
            server = self._server(address)
            if server is not None and server.prefixes.knows(block):
                _, blocks = server.prefixes.chain(block)
                yield Known(self._origin, address, [], [(None, pack_blocks(blocks))])
        # Send one server at a time, so that picks can run in between.
        part = next(self._known_parts, None)
        if part is not None:
            self._wake()
            yield part

    def _answer(self, delta: Ask | Want) -> None:
        if isinstance(delta, Ask):
            self._is_asked = True
            if delta.all_known:
                self._known_parts = self._list_known()
        elif len(self._answers) < MAX_WANTS:
            self._answers[delta.server, delta.block] = None
        self._wake()

    def _list_known(self) -> Iterator[Known]:
        servers = self._scheduler.servers
        for server in servers:
            most = MAX_SHARED_BLOCKS // len(servers)
            yield Known(
                self._origin,
                server.endpoint.address,
                # If more adapters are in use than a message may hold, send the latest ones.
                [*filter(is_sendable, server.adapters.used_at)][-MAX_ADAPTERS:],
                _chains(server, most),
                whole=True,
            )

    def _adopt(self, origin: int, names: Sequence[str], placed: Placed, now: float) -> Placement | None:
        endpoint = self._find(names[placed.server])
        is_full = len(self._peers[origin]) >= MAX_PLACED or sum(map(len, self._peers.values())) >= MAX_ADOPTED
        if endpoint is None or is_full:
            self.dropped["unknown-server" if endpoint is None else "too-many"] += 1
            return None
        request = InstanceRequest(
            adapter=None if placed.adapter is None else names[placed.adapter],
            prompt_tokens=placed.prompt_tokens,
            prefix=self._prefix(origin, endpoint, placed),
            expected_tokens=placed.expected_tokens,
        )
        cached = placed.prompt_tokens - placed.uncached_tokens
        return self._scheduler.adopt(endpoint, request, cached, placed.room, now)

    def _prefix(self, origin: int, endpoint: Endpoint, placed: Placed) -> Fingerprint:
        """The beginning of a placed prompt, as far as its blocks are known here."""
        known: list[int] = []
        behind = unpack_blocks(placed.behind)
        if placed.last is not None:
            _, known = self._scheduler.server(endpoint).prefixes.chain(placed.last)
            if not known:
                if len(self._wants) < MAX_WANTS:
                    block = behind[-1] if behind else placed.last
                    self._wants[Want(self._origin, origin, endpoint.address, block)] = None
                return NO_FINGERPRINT
        return Fingerprint((*known, *behind))

    def _note_lacking(self, batch: Batch, now: float) -> None:
        for address, adapter in batch.lacking:
            server = self._server(batch.names[address])
            if server is not None:
                self._scheduler.forget_adapter(server.endpoint, batch.names[adapter], now, by_peer=True)

    def _learn_prompts(self, batch: Batch) -> None:
        """Learn the prompts of a batch even if it is not the next one."""
        for placed in batch.placed:
            server = self._server(batch.names[placed.server])
            if server is not None:
                server.prefixes.extend(placed.last, unpack_blocks(placed.behind))

    def _learn_server(self, known: Known, now: float) -> None:
        server = self._server(known.server)
        if server is None:
            self.dropped["unknown-server"] += 1
            return
        for adapter in known.adapters:
            if adapter not in server.adapters.used_at:
                server.adapters.use(adapter, now, server.adapter_requests)
        for last, blocks in known.chains:
            server.prefixes.extend(last, unpack_blocks(blocks))

    def _server(self, address: str) -> ServerState | None:
        endpoint = self._find(address)
        return None if endpoint is None else self._scheduler.server(endpoint)


def _chains(server: ServerState, most: int) -> list[tuple[int | None, bytes]]:
    """The newest blocks, as chains. The end of a prompt is older than its beginning, so each block is sent once."""
    prefixes = server.prefixes
    known = [*reversed(prefixes.told), *prefixes.blocks]
    sent: set[int] = set()
    chains: list[tuple[int | None, bytes]] = []
    for block in known[-most:]:
        if block not in sent:
            last, blocks = server.prefixes.chain(block, sent)
            sent.update(blocks)
            chains.append((last, pack_blocks(blocks)))
    return chains
