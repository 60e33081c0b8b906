"""Whatever happens to requests, in whatever order: what was counted is released once."""

import weakref
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.instances.baselines.policies import ALL_POLICIES
from tests.picker.core.cases import endpoint, request, server, told
from tg_picker.core import (
    AdapterReport,
    Endpoint,
    Fingerprint,
    InstanceRequest,
    InstanceUsage,
    LoadReport,
    Objective,
    Pick,
    Placement,
    Rejection,
    Scheduler,
    ServerState,
)
from tg_picker.core.queue.slo_attainment import SloAttainment
from tg_picker.core.state.output_estimates import ASSUMED_OUTPUT_TOKENS, OutputEstimates
from tg_picker.core.state.resident_adapters import MAX_ADAPTERS
from tg_picker.core.state.server_state import MAX_UNSEEN

ENDPOINTS = tuple(map(endpoint, "abc"))
EVENTS = st.tuples(
    st.sampled_from(["pick", "first", "finish", "leave", "observe", "restart", "404"]),
    st.integers(0, 30),
    st.sampled_from([None, "x", "y", "z"]),
)


def counters(server: ServerState) -> list[object]:
    """All that has to be at zero when nothing is in flight."""
    return [
        server.requests,
        server.unstarted,
        server.uncached_tokens,
        server.adapter_requests,
        server.kv_tokens,
        server.ready_at,
    ]


NOTHING = [0, 0, 0, {}, 0, {}]


@dataclass
class World:
    """A scheduler and all that it ever placed."""

    scheduler: Scheduler
    placements: list[Placement] = field(default_factory=list)
    now: float = 0.0

    def act(self, event: str, number: int, adapter: str | None) -> None:
        self.now += number / 100
        if event == "pick":
            asked = request(adapter, tokens=64 * number + 1, blocks=tuple(range(number)), priority=number - 15)
            made = self.scheduler.pick(asked, ENDPOINTS[number % 3 :], self.now)
            if isinstance(made, Pick):
                self.placements.append(made.placement)
        elif event == "observe":
            adapters = AdapterReport(2, frozenset(filter(None, [adapter]))) if number % 2 else None
            report = LoadReport(self.now, queued=number, kv_usage=number / 30, adapters=adapters, blocks=number)
            self.scheduler.observe(ENDPOINTS[number % 3], report)
        elif event == "restart":
            self.scheduler.restarted(ENDPOINTS[number % 3])
        elif event == "404":
            self.scheduler.forget_adapter(ENDPOINTS[number % 3], adapter or "x", self.now)
        elif self.placements:
            self.end(self.placements[number % len(self.placements)], event)

    def end(self, placement: Placement, event: str) -> None:
        if event == "first":
            placement.first_token(self.now)
        else:
            placement.finish(InstanceUsage(output_tokens=7) if event == "finish" else None, self.now)


@pytest.mark.parametrize("policy", ALL_POLICIES)
@settings(max_examples=40)
@given(events=st.lists(EVENTS, max_size=60), seed=st.integers(0, 5))
def test_accounting_closes(policy: str, events: list[tuple[str, int, str | None]], seed: int) -> None:
    world = World(Scheduler(ALL_POLICIES[policy](), random=Random(seed)))
    for event in events:
        world.act(*event)
    states = [world.scheduler.server(each) for each in ENDPOINTS]
    open_requests = sum(not placement.ended for placement in world.placements)
    assert sum(state.requests for state in states) == open_requests
    for placement in world.placements:
        placement.finish(None, world.now)
    assert [counters(state) for state in states] == [NOTHING] * 3
    assert [(state.room_tokens, len(state.active)) for state in states] == [(0, 0)] * 3


def test_the_same_calls_give_the_same_decisions() -> None:
    def run(policy: str) -> list[object]:
        scheduler = Scheduler(ALL_POLICIES[policy](), random=Random(3))
        made: list[object] = []
        for number in range(60):
            asked = request("xyz"[number % 3], tokens=10 * number, blocks=tuple(range(number % 5)))
            pick = scheduler.pick(asked, ENDPOINTS, number / 10)
            made.append((pick.endpoint, pick.fallbacks, pick.reasons) if isinstance(pick, Pick) else pick)
        return made

    for policy in ALL_POLICIES:
        assert run(policy) == run(policy), policy


def test_nobody_to_pick_from() -> None:
    scheduler = Scheduler()
    assert scheduler.pick(request(), (), 0.0) == Rejection("no-endpoints", 503, 1.0)


def test_a_removed_server_s_placements_may_still_end() -> None:
    scheduler = Scheduler("round-robin")
    pick = scheduler.pick(request("x"), ENDPOINTS[:1], 0.0)
    assert isinstance(pick, Pick)
    scheduler.retain(ENDPOINTS[1:])
    pick.placement.finish(None, 1.0)
    assert counters(scheduler.server(ENDPOINTS[0])) == NOTHING


def test_a_server_that_left_and_was_told_of_late_is_forgotten_at_the_next_change() -> None:
    scheduler = Scheduler("round-robin")
    pick = scheduler.pick(request("x"), ENDPOINTS[:1], 0.0)
    scheduler.retain(ENDPOINTS[1:])
    scheduler.observe(ENDPOINTS[0], LoadReport(1.0, queued=5))
    scheduler.retain(ENDPOINTS[1:])
    assert isinstance(pick, Pick)
    pick.placement.finish(None, 1.0)
    assert scheduler.server(ENDPOINTS[0]).report is None


def test_what_servers_of_a_model_showed_is_kept_while_one_of_them_is_there() -> None:
    scheduler = Scheduler("round-robin")
    first, second = (Endpoint(f"{each}:8000", each, models=("base",)) for each in "ab")
    shown = weakref.ref(scheduler.server(first).speed.engine)
    assert scheduler.server(second).speed.engine is shown()
    scheduler.retain([second])
    assert scheduler.server(first).speed.engine is shown()
    scheduler.retain([])
    assert shown() is None


def test_a_queue_is_as_told_until_more_came_than_a_server_takes_at_once() -> None:
    state = server("a", told(queued=2), *[request()] * MAX_UNSEEN)
    assert state.queue == 2
    state.place(request(), 100, 100, 0.0)
    assert state.queue == 3
    state.start(None, 100, 0.0)
    assert state.queue == 2
    state.observe(told(queued=0))
    assert state.queue == 0


def test_a_restart_that_is_seen_late_leaves_what_the_new_process_has_told() -> None:
    state = ServerState(ENDPOINTS[0])
    state.prefixes.add(Fingerprint((1, 2)))
    state.prefixes.tell(3, 0)
    state.restart()
    assert [state.prefixes.knows(block) for block in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize(
    ("starts", "forgets"),
    [
        ([5.0, 6.0], True),
        ([5.0, None, 6.0], True),
        ([5.0, 5.0], False),
        ([None, 5.0], False),
        # Two processes behind one address, and a clock that was set back.
        ([5.0, 4.0, 5.0, 4.0], False),
    ],
)
def test_a_server_that_tells_a_later_start_has_lost_what_it_had(starts: list[float | None], forgets: bool) -> None:
    scheduler, lost = Scheduler("round-robin"), ENDPOINTS[0]
    scheduler.observe(lost, LoadReport(0.0, started_at=starts[0]))
    pick = scheduler.pick(request("x", blocks=(1, 2)), (lost,), 0.0)
    assert isinstance(pick, Pick)
    scheduler.forget_adapter(lost, "y", 0.0)
    for at, started_at in enumerate(starts[1:], 1):
        scheduler.observe(lost, LoadReport(float(at), started_at=started_at))
    state = scheduler.server(lost)
    assert (len(state.adapters), len(state.prefixes)) == ((0, 0) if forgets else (1, 2))
    assert len(scheduler.missing.without(ENDPOINTS, "y")) == (3 if forgets else 2)
    assert (state.requests, state.report is not None) == (1, True)


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("token", [0.0, 1e-6])
def test_a_server_that_takes_no_time_and_a_clock_that_leaps_leave_predictions_sound(policy: str, token: float) -> None:
    scheduler, now = Scheduler(ALL_POLICIES[policy](), random=Random(0)), 0.0
    # After a day, as of a machine that slept, nothing that was told counts any more.
    for leap in (0.0, 1e-6, 86_400.0, 0.0):
        for _ in range(50):
            now += leap
            scheduler.observe(ENDPOINTS[0], LoadReport(now, 0, 0, 0.0, 16, 1_000, started_at=-now))
            pick = scheduler.pick(request("x", blocks=(1, 2)), ENDPOINTS, now)
            assert isinstance(pick, Pick)
            pick.placement.first_token(now + token)
            pick.placement.finish(InstanceUsage(100, 0, 1_000), now + 1_000 * token)
    for state in scheduler.servers:
        assert 0 <= scheduler.predict_first_token(request("x"), state, now) < 60
        assert counters(state) == NOTHING


@pytest.mark.parametrize("told", [-5, 10**9, 10**400], ids=["negative", "many", "no float"])
def test_nothing_is_learnt_of_answers_that_cannot_be(told: int) -> None:
    scheduler = Scheduler()
    for now in range(3):
        pick = scheduler.pick(request("x"), ENDPOINTS, now)
        assert isinstance(pick, Pick)
        assert pick.placement.expected_tokens == ASSUMED_OUTPUT_TOKENS
        pick.placement.first_token(now)
        pick.placement.finish(InstanceUsage(output_tokens=told), now + 0.5)


def test_adapters_are_forgotten_whatever_slots_a_server_tells() -> None:
    state = ServerState(ENDPOINTS[0])
    state.observe(LoadReport(0.0, adapters=AdapterReport(10_000_000)))
    for at in range(MAX_ADAPTERS + 10):
        state.place(request(f"made-up-{at}"), 0, 1, 0.0)
        state.start(f"made-up-{at}", 0, 0.0)
        state.release(f"made-up-{at}", 100, 0, 1)
    assert len(state.adapters) == MAX_ADAPTERS


@pytest.mark.parametrize(("known", "cap", "expected"), [(None, 10, 10), (None, 1_000, 128), (50, 10, 10), (None, 0, 1)])
def test_no_answer_is_expected_to_be_longer_than_it_may(known: int | None, cap: int, expected: int) -> None:
    assert OutputEstimates().expect(InstanceRequest(expected_tokens=known, max_tokens=cap)) == expected


def learnt(streamed: bool, *, began: float | None, tokens: int | None) -> tuple[float, float]:
    """What a server is believed to take until a first token and for each more, in seconds, after a request of 10 s."""
    scheduler, asked = Scheduler(), InstanceRequest("base", prompt_tokens=1_000, streamed=streamed)
    pick = scheduler.pick(asked, ENDPOINTS[:1], 0.0)
    assert isinstance(pick, Pick)
    if began is not None:
        pick.placement.first_token(began)
    pick.placement.finish(InstanceUsage(output_tokens=tokens), 10.0)
    state = scheduler.server(ENDPOINTS[0])
    assert counters(state) == NOTHING
    return state.speed.predict_first_token(1_000), state.speed.output_token_seconds


def test_a_whole_answer_teaches_its_pace_and_not_a_first_token() -> None:
    first, pace = learnt(streamed=False, began=None, tokens=None)
    assert learnt(streamed=False, began=10.0, tokens=None) == (first, pace)
    whole_first, whole_pace = learnt(streamed=False, began=10.0, tokens=101)
    # 10 s for 101 tokens, without what the prompt takes at the speed that is known.
    assert whole_first == first
    assert whole_pace == pytest.approx(0.0545, rel=1e-3)
    seen_first, seen_pace = learnt(streamed=True, began=10.0, tokens=101)
    assert seen_first > first
    assert seen_pace == pace


def test_a_whole_answer_keeps_no_promise_and_breaks_none() -> None:
    attainment, asked = SloAttainment(), InstanceRequest("base", objective=Objective(1.0, 0.1), streamed=False)
    pick = Scheduler().pick(asked, ENDPOINTS[:1], 0.0)
    assert isinstance(pick, Pick)
    pick.placement.followers = (attainment,)
    attainment.watch(pick.placement, asked, 0.0, 0.5, 0.05)
    pick.placement.first_token(9.0)
    pick.placement.finish(InstanceUsage(output_tokens=50), 10.0)
    assert attainment.read(10.0) == {}
