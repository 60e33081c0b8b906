"""Pick -> server state: one request on one server, counted until it ends."""

from collections.abc import Sequence
from typing import NamedTuple

from tg_picker.core.interface import BLOCK_TOKENS, Fingerprint, InstanceRequest, InstanceUsage
from tg_picker.core.state.active_prefixes import marks_of
from tg_picker.core.state.output_estimates import OutputEstimates
from tg_picker.core.state.server_state import ServerState

MAX_OUTPUT_TOKENS = 1_000_000
"""A longer answer is implausible and is ignored: it would distort the estimates for all others."""


class LatencySample(NamedTuple):
    """A measurement: a number of tokens, and the seconds that they took."""

    tokens: int
    seconds: float


class Follower:
    """Is notified of each event of a scheduler, in order and once. Its methods must not fail and must not wait."""

    def placed(self, placement: "Placement", prefix: Fingerprint, matched: int) -> None:
        """This scheduler placed a request. The server probably has `matched` blocks of its prompt."""

    def began(self, placement: "Placement", sample: LatencySample | None, now: float) -> None:
        """The answer began. `sample` is the latency measured until then."""

    def finished(
        self, placement: "Placement", sample: LatencySample | None, usage: InstanceUsage | None, now: float
    ) -> None:
        """The request ended and no longer counts at its server. Its answer may not have begun.

        `sample` is what was measured of the answer, `usage` what the server counted.
        """

    def lacked(self, address: str, adapter: str) -> None:
        """A server answered that it lacks an adapter that it should have."""

    def changed(self) -> None:
        """A server reported its load, or the set of servers changed, so there may be capacity for a request."""


class Placement:
    """One request on one server. `first_token` and `finish` may come in any order and repeatedly; each counts once.

    The caller of `pick` must call `finish`, however the request ends.

    Attributes:
        address: the address of the server.
        adapter: the request's adapter.
        uncached_tokens: tokens of the prompt that the server has to compute.
        expected_tokens: expected tokens of the answer.
        marks: the prompt's marked blocks, each of which stands for everything before it.
        room: tokens of the prompt that no other request on the server used when it was placed.
        picked_at: when it was placed, on the scheduler's clock.
        first_at: when the answer began; None = not yet.
        number: the number that the journal gave it; 0 = it was adopted, or nobody listens.
        followers: the followers of its scheduler, which are notified of its progress.
        loads_adapter: whether the server probably had to load the adapter first.
        streamed: whether the answer comes token by token.
    """

    __slots__ = (
        "_beside",
        "_estimates",
        "_is_behind",
        "_is_held_up",
        "_is_sheddable",
        "_loads_ahead",
        "_objective",
        "_server",
        "_tokens_ahead",
        "_was_cold",
        "adapter",
        "address",
        "expected_tokens",
        "first_at",
        "followers",
        "loads_adapter",
        "marks",
        "number",
        "picked_at",
        "prompt_tokens",
        "room",
        "streamed",
        "uncached_tokens",
    )

    def __init__(
        self,
        server: ServerState,
        request: InstanceRequest,
        estimates: OutputEstimates,
        cached: int,
        now: float,
        *,
        reported_room: int | None = None,
        followers: Sequence[Follower] = (),
    ) -> None:
        self._server: ServerState | None = server
        self._estimates = estimates
        self._tokens_ahead = server.uncached_tokens
        self._beside = server.running
        self._is_behind = server.unstarted > 0
        self._was_cold = server.is_cold
        self._is_sheddable, self._objective = request.priority < 0, request.objective
        self.address = server.endpoint.address
        self.adapter = request.adapter
        self.prompt_tokens = request.prompt_tokens
        self.uncached_tokens = max(request.prompt_tokens - cached, 0)
        self.expected_tokens = estimates.expect(request)
        self.picked_at = now
        self.first_at: float | None = None
        self.streamed = request.streamed
        self.number = 0
        self.followers = followers
        self.loads_adapter = request.adapter is not None and request.adapter not in server.adapters.used_at
        has_adapter = not self.loads_adapter and request.adapter not in server.ready_at
        self._loads_ahead = max(server.loads_end_at - now, 0.0) if has_adapter and not server.is_cold else 0.0
        self.marks = marks_of(request.prefix)
        self.room = self.uncached_tokens
        if reported_room is not None:
            self.room = reported_room
        elif request.prefix.blocks:  # without blocks nobody knows which part of the prompt is in use
            shared, _ = server.active.shared_blocks(request.prefix, cached // BLOCK_TOKENS)
            self.room = max(request.prompt_tokens - BLOCK_TOKENS * shared, 0)
        self._is_held_up = (
            server.place(request, self.uncached_tokens, self.expected_tokens, now, room=self.room, marks=self.marks)
            or reported_room is not None
        )
        if self.streamed and not self._is_held_up:
            server.waiting_since[self] = now

    @property
    def ended(self) -> bool:
        """Whether `finish` was called."""
        return self._server is None

    def first_token(self, now: float, learnt: LatencySample | None = None) -> None:
        """Report that the answer began. Has no effect after `finish`, or on answers that come whole.

        Args:
            now: seconds on the scheduler's clock.
            learnt: the measurement of the other scheduler, if another one placed the request.
        """
        server = self._server
        if server is None or self.first_at is not None or not self.streamed:
            return
        self.first_at = now
        server.waiting_since.pop(self, None)
        server.start(self.adapter, self.uncached_tokens, now, self.room)
        self._beside = server.running - 1
        seconds = now - self.picked_at
        # A late first token proves nothing if the request was sheddable, held up or alone, or the server was cold.
        is_excused = self._is_sheddable or self._is_held_up or self._was_cold or not self._beside
        is_late = not server.speed.is_soon(seconds, self.uncached_tokens, self._objective)
        if not (is_late and is_excused):
            server.limit_concurrency(self._beside, is_late=is_late)
        # Learn the server's speed only from prompts that did not wait for anything else.
        own = LatencySample(self._tokens_ahead + self.uncached_tokens, seconds)
        sample = learnt if self._is_held_up else own
        if self._loads_ahead:
            late = seconds - server.speed.predict_first_token(own.tokens, is_behind=self._is_behind)
            server.speed.engine.learn_load(self._loads_ahead, late)
        for each in self.followers:
            each.began(self, sample, now)
        if sample is not None:
            server.speed.learn_first_token(*sample, now, is_behind=self._is_behind)

    def finish(self, usage: InstanceUsage | None, now: float, learnt: LatencySample | None = None) -> None:
        """Report that the request ended: it was answered, it failed, or its client left.

        Args:
            usage: what the server counted; None = it reported nothing.
            now: seconds on the scheduler's clock.
            learnt: the measurement of the other scheduler, if another one placed the request.
        """
        server, self._server = self._server, None
        if server is None:
            return
        if self.first_at is None:
            server.waiting_since.pop(self, None)
            server.start(self.adapter, self.uncached_tokens, now, self.room)
        sample = learnt or self._sample(usage, now, server)
        server.release(
            self.adapter,
            self.prompt_tokens,
            self.uncached_tokens,
            self.expected_tokens,
            self.marks,
            answered=0 if sample is None else sample.tokens,
        )
        if sample is not None:
            server.speed.learn_output(*sample, (self._beside + server.running) / 2)
            self._estimates.learn(self.adapter, sample.tokens)
        for each in self.followers:
            each.finished(self, sample, usage, now)

    def _sample(self, usage: InstanceUsage | None, now: float, server: ServerState) -> LatencySample | None:
        tokens = None if usage is None else usage.output_tokens
        if tokens is None or not 0 < tokens <= MAX_OUTPUT_TOKENS:
            return None
        if self.first_at is not None:
            return LatencySample(tokens, now - self.first_at)
        if self.streamed:
            return None
        # Subtract the time that the prompt probably took. If the request was held up, only its length can be learnt.
        ahead = self._tokens_ahead + self.uncached_tokens
        prompt = server.speed.predict_first_token(ahead, is_behind=self._is_behind)
        return LatencySample(tokens, 0.0 if self._is_held_up else max(now - self.picked_at - prompt, 0.0))
