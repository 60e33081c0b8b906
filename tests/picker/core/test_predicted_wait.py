"""The default policy's decisions, worked by hand from its constants and from what is assumed of a server.

A first token takes 0.05 s and 0.1 ms a token to compute; a request takes 100 tokens of 0.03 s, so 3 s; a load 0.4 s.
"""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis.strategies import floats

from tests.picker.core.cases import choice, choices, choose, endpoint, request, server, told
from tg_picker.core import (
    Choice,
    Endpoint,
    Fingerprint,
    InstanceRequest,
    InstanceUsage,
    LoadReport,
    Objective,
    Pick,
    Scheduler,
    ServerState,
)
from tg_picker.core.policies.predicted_wait import PredictedWait
from tg_picker.core.state.server_speed import ServerSpeed

BASE, X, Y, Z = request(), request("x"), request("y"), request("z")
TEN = tuple(range(10))
LONG = request(tokens=1000, blocks=TEN)


def begun(name: str, slots: int, *placed: InstanceRequest, ahead: int = 0) -> ServerState:
    """A server on which these requests have begun to answer, and so many tokens of others wait to be computed."""
    state = server(name, told(slots=slots), *placed)
    for each in placed:
        state.start(each.adapter, each.prompt_tokens, 0.0)
    state.uncached_tokens = ahead
    return state


def idle(name: str, slots: int, adapter: str, used_at: float = 0.0) -> ServerState:
    """A server that has an adapter loaded and nothing to do."""
    state = server(name, told(slots=slots))
    state.adapters.used_at[adapter] = used_at
    return state


def cached(name: str, ahead: int, report: LoadReport | None = None) -> ServerState:
    """A server that has the ten blocks, and so many tokens to compute."""
    state = server(name, report)
    state.prefixes.add(Fingerprint(TEN))
    state.uncached_tokens = ahead
    return state


def slow(name: str) -> ServerState:
    state = server(name)
    state.speed.engine.first.slope = 1e-3
    return state


def used(usage: float) -> LoadReport:
    """A cache of 10,000 tokens, of which this share is in use."""
    return LoadReport(0.0, kv_usage=usage, block_tokens=16, blocks=625)


def full(name: str, usage: float) -> ServerState:
    return server(name, used(usage))


def late(name: str, seconds: float) -> ServerState:
    """Its only slot is in use by y, and a request for x should have got it so long ago."""
    state = begun(name, 1, Y)
    state.place(X, X.prompt_tokens, 100, 0.0)
    state.ready_at["x"] = -seconds
    return state


# What a slot counts: 0.1 * 3 s * slots in use / slots. With one of two: 0.15 s.
TABLE = [
    ("nobody has anything: by chance", BASE, "ab", [server("a"), server("b")]),
    ("a prompt waits at a", BASE, "b", [server("a", None, BASE), server("b")]),
    ("the adapter runs at a", X, "a", [begun("a", 2, X), server("b", told(slots=2))]),
    ("0.50 ahead against a load of 0.40 and a slot of 0.15", X, "a", [begun("a", 2, X, ahead=5_000), begun("b", 2)]),
    ("0.60 ahead against the same: a second replica", X, "b", [begun("a", 2, X, ahead=6_000), begun("b", 2)]),
    ("loaded and idle", X, "a", [idle("a", 2, "x"), idle("b", 2, "y")]),
    ("a free slot before unloading", X, "b", [idle("a", 1, "y"), begun("b", 1)]),
    ("one has to be unloaded: by chance", X, "ab", [idle("a", 1, "y", -1.0), idle("b", 1, "z", -9.0)]),
    ("a slot in use is not free", X, "b", [begun("a", 1, Y), begun("b", 2, Y, ahead=9_000)]),
    # One of two answers ends after half of the time that one takes, and both of one slot after more than that.
    ("none is free: where one request ends next", X, "a", [begun("a", 2, Y, Z), begun("b", 1, Y, Y)]),
    ("none is free: where nobody waits for one", X, "a", [begun("a", 1, Y), begun("b", 1, Y, Z)]),
    # Each of two more answers stands still for a load and a prompt (0.46 s), and it and this one are 0.47 ms slower for
    # 100 tokens: 0.55 s, at a tenth. The slot is in use for 0.09 s longer: 0.01 s. In all 0.12 s, or 1,200 tokens.
    ("0.115 ahead, and two fewer that a load stops", X, "b", [begun("a", 2, Y, Y, Y), begun("b", 2, Y, ahead=1_150)]),
    ("0.125 ahead", X, "a", [begun("a", 2, Y, Y, Y), begun("b", 2, Y, ahead=1_250)]),
    # Elsewhere a slot counts 2 s and 0.3 of the 3 s until it drains, and the load 0.4 s.
    ("the slot is 3 s late", X, "a", [late("a", 3.0), begun("b", 1, Z)]),
    ("4 s late: who has it keeps it", X, "b", [late("a", 4.0), begun("b", 1, Z)]),
    ("base model: no slot needed", BASE, "ab", [begun("a", 1), begun("b", 2)]),
    # 640 of 1,000 tokens are cached: 0.036 s against 0.100 s, a gap of 0.064 s.
    ("0.06 behind", LONG, "a", [cached("a", 600), server("b")]),
    ("0.07 behind", LONG, "b", [cached("a", 700), server("b")]),
    ("a slow server", LONG, "b", [slow("a"), server("b")]),
    ("room in the cache", BASE, "b", [full("a", 0.995), full("b", 0.9)]),
    ("more room in the cache", BASE, "b", [full("a", 0.8), full("b", 0.7)]),
    # 0.3 s of 4.02 at 0.70 (3 * 0.7 + 8 * 0.7 ** 4), 4.16 at 0.71, 4.31 at 0.72: 1.21, 1.25, 1.29 s. All 1,000 tokens
    # take room, the cached ones too; computing the 640 takes 0.064 s more.
    ("cached and idle, a little less room", LONG, "a", [cached("a", 0, used(0.71)), server("b", used(0.70))]),
    ("cached and idle, less room", LONG, "b", [cached("a", 0, used(0.72)), server("b", used(0.70))]),
    # 0.3 s of 0.03 at 0.01, 0.15 at 0.05, 0.33 at 0.11: 0.01, 0.05, 0.10 s.
    ("both nearly empty, a little less room", LONG, "a", [cached("a", 0, used(0.05)), server("b", used(0.01))]),
    ("both nearly empty, less room", LONG, "b", [cached("a", 0, used(0.11)), server("b", used(0.01))]),
]


@pytest.mark.parametrize(("why", "asked", "chosen", "servers"), TABLE)
def test_decisions(why: str, asked: InstanceRequest, chosen: str, servers: list[ServerState]) -> None:
    assert choices(PredictedWait(), asked, *servers) == chosen, why


def cost_at(state: ServerState) -> float:
    made = choice(PredictedWait(), LONG, state)
    assert isinstance(made, Choice)
    return float(made.reasons[0].split()[1])


@given(floats(0.0, 1.0))
def test_an_idle_copy_is_worth_what_computing_it_takes_however_full_the_server(usage: float) -> None:
    """640 tokens at 0.1 ms. They take the same room as if they were not cached; costs are told to 0.001 s."""
    saved = cost_at(server("b", used(usage))) - cost_at(cached("a", 0, used(usage)))
    assert saved == pytest.approx(0.064, abs=0.0015)


def sheddable(ahead: int, objective: float | None, priority: int = -1) -> str:
    """One server with so many tokens to compute: 0.05 s, and 0.1 ms for each of them and of 100 more."""
    asked = InstanceRequest(
        "base", None, 100, priority=priority, objective=None if objective is None else Objective(first_token=objective)
    )
    return choose(PredictedWait(), asked, begun("a", 0, ahead=ahead))


def test_sheddable_requests_are_refused_from_half_of_their_objective_on() -> None:
    assert [sheddable(ahead, 1.0) for ahead in (4_300, 4_500)] == ["a", "objective-out-of-reach"]
    assert [sheddable(ahead, None) for ahead in (9_300, 9_500)] == ["a", "objective-out-of-reach"]
    assert sheddable(90_000, 1.0, priority=0) == "a"


def test_a_server_that_is_slow_by_itself_takes_sheddable_requests_while_others_do_not_make_them_wait() -> None:
    asked = InstanceRequest("base", None, 100, priority=-1, objective=Objective(first_token=1.0))
    states = [begun("a", 0, ahead=ahead) for ahead in (0, 29_000, 31_000)]
    for state in states:
        state.speed.engine.first.at_zero = 3.0
    # Alone it takes 3.01 s, and the others 0.1 ms for each of their tokens.
    assert [choose(PredictedWait(), asked, state) for state in states] == ["a", "a", "objective-out-of-reach"]


def test_reasons_say_what_counted() -> None:
    made = choice(PredictedWait(), LONG, cached("a", 0), server("b"))
    assert isinstance(made, Choice)
    assert made.reasons == ("cost 0.386 s", "cached blocks 10")
    assert [state.endpoint.name for state in made.others] == ["a", "b"]
    for state, reason in ((begun("a", 2, X), "adapter loaded"), (begun("b", 2), "adapter to load")):
        made = choice(PredictedWait(), X, state)
        assert isinstance(made, Choice)
        assert made.reasons[1:] == (reason,)


def test_few_of_many_servers_are_looked_at_and_the_right_one_is_among_them() -> None:
    busy = [begun(f"n{number}", 2, Y, ahead=10 * number) for number in range(40)]
    home, owner = idle("home", 2, "x"), cached("owner", 100)
    home.load = owner.load = 99.0
    assert choose(PredictedWait(), X, *busy, home) == "home"
    assert choose(PredictedWait(), request(tokens=6_400, blocks=TEN), *busy, owner) == "owner"
    slots_taken = [begun(f"n{number}", 1, Y) for number in range(40)]
    spare = begun("spare", 2, Z, Z, Z)
    assert choose(PredictedWait(), X, *slots_taken, spare) == "spare"


def test_a_server_s_speed_is_learnt_from_its_first_tokens() -> None:
    """Both begin equal. One answers in a tenth of the other's time, and gets more."""
    scheduler, pool = Scheduler("predicted-wait", random=Random(0)), (endpoint("a"), endpoint("b"))
    counts = {"a": 0, "b": 0}
    for number in range(200):
        now = 4.0 * number
        picks = [scheduler.pick(request(tokens=500 + 10 * number), pool, now) for _ in range(6)]
        for pick in picks:
            assert isinstance(pick, Pick)
            counts[pick.endpoint.name] += number >= 100
            seconds = (0.1 if pick.endpoint.name == "a" else 1.0) * pick.placement.uncached_tokens / 1_000
            pick.placement.first_token(now + seconds)
        for pick in picks:
            assert isinstance(pick, Pick)
            pick.placement.finish(InstanceUsage(output_tokens=5), now + 3.9)
    assert counts["a"] > 2 * counts["b"]


def test_a_report_that_knows_better_is_believed() -> None:
    """A loaded adapter that the server no longer names is forgotten, unless it was placed a moment ago."""
    state = server("a", told(slots=2), X)
    state.start("x", 100, 0.0)
    state.release("x", 100, 100, 100)
    early, late = (LoadReport(at, adapters=told(slots=2, resident={"y": "gpu"}).adapters) for at in (1.0, 3.0))
    state.observe(early)
    assert list(state.adapters.used_at) == ["x", "y"]
    state.observe(late)
    assert list(state.adapters.used_at) == ["y"]


def serve(
    clients: int, cold: Sequence[float] = (0.0, 0.0, 0.0), requests: int = 240, slow_until: float = 0.0
) -> list[tuple[float, int]]:
    """So many clients, each with one request at a time, at three equal servers: when each was asked, and which server.

    A server that is cold begins its first answer so many seconds late. Until `slow_until` the first one takes eight
    times as long to a first token as the others.
    """
    scheduler, pool = Scheduler("predicted-wait", random=Random(1)), tuple(map(endpoint, "abc"))
    asked: list[tuple[float, int]] = []
    ready, events = list(cold), [(0.0, number, "ask") for number in range(clients)]
    held: dict[int, Pick] = {}
    while events:
        events.sort()
        now, client, what = events.pop(0)
        if what == "ask" and len(asked) < requests:
            made = scheduler.pick(request(tokens=100), pool, now)
            assert isinstance(made, Pick)
            held[client], at = made, pool.index(made.endpoint)
            asked.append((now, at))
            begins = ready[at] = max(now, ready[at]) + (0.4 if not at and now < slow_until else 0.05)
            events.append((begins, client, "begin"))
        elif what == "begin":
            held[client].placement.first_token(now)
            events.append((now + 0.5, client, "end"))
        elif what == "end":
            held.pop(client).placement.finish(InstanceUsage(output_tokens=20), now)
            events.append((now, client, "ask"))
    return asked


def least_share(asked: list[tuple[float, int]]) -> float:
    """Of the requests, the share of the server that got fewest."""
    return min(sum(at == server for _, at in asked) for server in range(3)) / len(asked)


@pytest.mark.parametrize("clients", [1, 3, 6, 20])
def test_equal_servers_get_equal_loads(clients: int) -> None:
    assert least_share(serve(clients)) >= 1 / 6
    # All were cold at once, and the first to be warm does not get everything.
    assert least_share(serve(clients, (1.0, 4.0, 5.0), 480)) >= 1 / 6


@pytest.mark.parametrize("clients", [1, 6])
def test_what_a_server_is_known_for_fades_and_few_requests_renew_it(clients: int) -> None:
    """As its factor fades it gets a request now and then: its knowledge is renewed while it is slow and after that."""
    asked = serve(clients, requests=240 * clients, slow_until=60.0)
    assert asked[-1][0] > 120.0
    first = [now for now, at in asked if at == 0]
    while_slow = [now for now in first if now < 60.0]
    assert len(while_slow) < 0.1 * sum(now < 60.0 for now, _ in asked)
    assert max(late - early for early, late in pairwise(first)) < 40.0
    assert least_share([each for each in asked if each[0] > 80.0]) >= 1 / 6


def running(name: str, answers: int) -> ServerState:
    """A server on which so many answers of the base model have begun."""
    return begun(name, 0, *(answers * [BASE]))


def test_what_a_running_answer_loses_counts() -> None:
    """Nothing waits at either server, so only who runs there speaks for the other."""
    assert choose(PredictedWait(), BASE, running("a", 3), server("b")) == "b"
    assert choose(PredictedWait(), BASE, running("a", 2), running("b", 3)) == "a"


def test_who_waits_for_a_prompt_gets_the_next_step() -> None:
    """A prompt of one token takes a step all the same: two running answers cost less than that."""
    waiting = server("a")
    waiting.place(request(tokens=1), 1, 10, 0.0)
    assert choose(PredictedWait(), BASE, waiting, running("b", 2)) == "b"


@pytest.mark.parametrize(("answers", "limit", "chosen"), [(2, 60, "b"), (40, 60, "a"), (40, 30, "b")])
def test_a_prompt_that_joins_another_one_stops_the_answers_beside_them_for_half_a_step(
    answers: int, limit: int, chosen: str
) -> None:
    """It begins a step later, 0.05 s, and forty others save half a step: 0.1 s. Beyond the limit none is shared."""
    waiting, free = running("a", answers), running("b", answers)
    waiting.place(request(tokens=1), 1, 100, 0.0)
    for state in (waiting, free):
        state.limit_concurrency(limit, is_late=True)
    assert choose(PredictedWait(), BASE, waiting, free) == chosen


@pytest.mark.parametrize(("late", "chosen"), [(0.4, "a"), (0.0, "b")])
def test_what_comes_during_a_load_shows_whether_it_stops_what_runs(late: float, chosen: str) -> None:
    """At b thirty answers lose 0.4 s each, or nothing; at a the adapter is loaded, and 1.2 s of prompts wait."""
    scheduler, pool = Scheduler(), (endpoint("b"),)
    begin(scheduler, BASE).placement.finish(None, 0.2)
    known, b = scheduler.server(pool[0]), begun("b", 2, *(30 * [BASE]))
    for now in range(1, 120):
        picks = [scheduler.pick(asked, pool, now) for asked in (request(f"x{now}"), BASE)]
        seconds = known.speed.predict_first_token(200, is_behind=True)
        for pick, begins in zip(picks, (0.8, seconds + late), strict=True):
            assert isinstance(pick, Pick)
            pick.placement.first_token(now + begins)
            pick.placement.finish(None, now + 0.9)
    b.speed.engine = known.speed.engine
    assert choose(PredictedWait(), X, begun("a", 2, X, ahead=12_000), b) == chosen
    # The next request waits for a load as long as those did.
    scheduler.pick(request("y"), pool, 200.0)
    waits = scheduler.predict_first_token(BASE, known, 200.0)
    assert waits == pytest.approx(known.speed.predict_first_token(200, is_behind=True) + late, abs=0.02)


@pytest.mark.parametrize(("queued", "usage", "goes"), [(1, 0.5, True), (2, 0.5, False), (0, 0.81, False)])
def test_a_sheddable_request_leaves_room_for_the_others(queued: int, usage: float, goes: bool) -> None:
    state, low = server("a", told(queued, usage)), request(priority=-1)
    assert isinstance(choice(PredictedWait(), low, state), Choice) is goes
    assert isinstance(choice(PredictedWait(), BASE, state), Choice)
    # The queue is as it was told, but for those that began since.
    state.place(request(), 1, 1, 0.0)
    state.start(None, 1, 0.0)
    assert isinstance(choice(PredictedWait(), low, state), Choice) is (usage < 0.8)


def begin(scheduler: Scheduler, asked: InstanceRequest, seconds: float = 0.1) -> Pick:
    """Place a request at 0.0, and begin its answer so many seconds later. Afterwards as many run as before."""
    made = scheduler.pick(asked, (endpoint("a"),), 0.0)
    assert isinstance(made, Pick)
    made.placement.first_token(seconds)
    return made


@pytest.mark.parametrize(
    ("late", "seconds", "is_blamed"),
    [(BASE, 1.1, True), (BASE, 0.9, False), (request(priority=-1), 1.1, False), (X, 1.1, False)],
)
def test_a_fifth_of_what_runs_in_time_is_kept_for_what_may_not_be_shed(
    late: InstanceRequest, seconds: float, is_blamed: bool
) -> None:
    """Beside ten answers one begins late: after half of the 2 s that are assumed. A load may make one late as well."""
    scheduler, low = Scheduler(), request(priority=-1)
    running = [begin(scheduler, BASE) for _ in range(10)]
    begin(scheduler, late, seconds).placement.finish(None, 2.0)
    assert isinstance(scheduler.pick(low, (endpoint("a"),), 2.0), Pick) is not is_blamed
    if is_blamed:
        for each in running[:2]:
            each.placement.finish(None, 2.0)
        assert not isinstance(scheduler.pick(low, (endpoint("a"),), 2.0), Pick)
        # As many as the limit begin in time, and it is one more.
        for _ in range(11):
            begin(scheduler, BASE).placement.finish(None, 2.0)
        assert isinstance(scheduler.pick(low, (endpoint("a"),), 2.0), Pick)
        assert isinstance(scheduler.pick(BASE, (endpoint("a"),), 2.0), Pick)


def test_a_late_answer_that_ran_alone_says_nothing_of_how_many_may_run() -> None:
    """A cold start, as after each restart of a server: nothing ran beside it that could be to blame."""
    scheduler, low = Scheduler(), request(priority=-1)
    begin(scheduler, BASE, 5.0)
    assert isinstance(scheduler.pick(low, (endpoint("a"),), 5.0), Pick)


def test_late_answers_of_a_cold_server_say_nothing_of_how_many_may_run() -> None:
    """Nothing had begun there when they were placed. Their number would be the limit."""
    scheduler, low, pool = Scheduler(), request(priority=-1), (endpoint("a"),)
    for pick in [scheduler.pick(BASE, pool, 0.0) for _ in range(3)]:
        assert isinstance(pick, Pick)
        pick.placement.first_token(5.0)
    assert isinstance(scheduler.pick(low, pool, 5.0), Pick)
    # It is cold again after a restart.
    scheduler.restarted(pool[0])
    begin(scheduler, BASE, 11.0)
    assert isinstance(scheduler.pick(low, pool, 11.0), Pick)


def test_late_answers_of_which_nobody_is_to_blame_do_not_raise_the_limit() -> None:
    """Each waits for the load of its adapter. As many that begin in time would raise it: see above."""
    scheduler, low = Scheduler(), request(priority=-1)
    running = [begin(scheduler, BASE) for _ in range(10)]
    begin(scheduler, BASE, 1.1).placement.finish(None, 2.0)
    for each in running[:2]:
        each.placement.finish(None, 2.0)
    for number in range(22):
        begin(scheduler, request(f"x{number}"), 1.1).placement.finish(None, 2.0)
    assert not isinstance(scheduler.pick(low, (endpoint("a"),), 2.0), Pick)


def test_in_a_large_pool_a_sheddable_request_finds_a_server_without_a_queue() -> None:
    """Those with the least that we have placed there tell a queue of others."""
    queued = [server(f"q{number}", told(3, 0.1)) for number in range(4)]
    free = [server(f"f{number}", told(0, 0.1), BASE) for number in range(14)]
    for state in free:
        state.start(None, BASE.prompt_tokens, 0.0)
    assert choose(PredictedWait(), request(priority=-1), *queued, *free).startswith("f")


def test_a_stall_counts_once_and_what_was_slow_is_tried_again() -> None:
    speed, slow = ServerSpeed(), ServerSpeed()
    before = speed.predict_first_token(100)
    speed.learn_first_token(100, 5.0, 5.0)
    for _ in range(20):
        speed.learn_first_token(2_000, 4.9, 5.0, is_behind=True)
    assert speed.predict_first_token(100) < 5 * before
    for _ in range(20):
        slow.learn_first_token(100, 3 * slow.engine.first(100), 0.0)
    assert slow.predict_first_token(100) > 1.5 * ServerSpeed(slow.engine).predict_first_token(100)
    slow.fade(100.0)
    assert slow.predict_first_token(100) == ServerSpeed(slow.engine).predict_first_token(100)


def test_the_first_server_that_is_warm_makes_all_others_look_warm() -> None:
    """Both began cold. What one shows counts for the other at once, so that this one is not left idle."""
    cold = ServerSpeed()
    warm, idle = ServerSpeed(cold.engine), ServerSpeed(cold.engine)
    for now in range(20):
        cold.learn_first_token(100, 2.0, float(now))
    for now in range(20, 140):
        warm.learn_first_token(100, 0.1, float(now))
    idle.fade(140.0)
    assert idle.predict_first_token(100) < 1.2 * warm.predict_first_token(100)


def test_a_server_that_is_slow_for_good_is_known_also_if_nothing_there_is_ever_alone() -> None:
    """All its requests come behind others and take eight times as long as on a server like it."""
    like = ServerSpeed()
    slow = ServerSpeed(like.engine)
    for now in range(40):
        like.learn_first_token(1_000, 0.15, 2.0 * now)
        slow.learn_first_token(1_000, 1.2, 2.0 * now, is_behind=True)
    assert slow.predict_first_token(1_000) > 2 * like.predict_first_token(1_000)


def test_servers_that_tell_no_model_are_equal_only_if_their_labels_are() -> None:
    """A pool of a table labels its servers with its name. What one pool shows says nothing of another one's."""
    scheduler = Scheduler()
    first, like, other = (
        scheduler.server(Endpoint(f"{name}:8000", labels={"pool": pool}))
        for name, pool in (("a", "x"), ("b", "x"), ("c", "y"))
    )
    for now in range(20):
        first.speed.learn_first_token(100, 0.6, now)
    scheduler.expire(20.0)
    assert like.speed.predict_first_token(100) > 2 * other.speed.predict_first_token(100)
    scheduler.retain([like.endpoint])
    assert scheduler.server(first.endpoint).speed.engine is like.speed.engine
