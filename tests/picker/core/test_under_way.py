"""What requests in flight tell: which beginnings of prompts are in use, and which room."""

from random import Random

import pytest

from tests.picker.core.cases import choices, endpoint, request, server
from tg_picker.core import (
    Choice,
    Fingerprint,
    InstanceUsage,
    LoadReport,
    Pick,
    Scheduler,
    SchedulingContext,
    ServerState,
)
from tg_picker.core.policies.predicted_wait import PredictedWait
from tg_picker.core.state.active_prefixes import ActivePrefixes, marks_of

TWENTY = tuple(range(100, 120))


def test_marks_are_the_first_the_fourth_and_the_sixteenth_block() -> None:
    assert [marks_of(Fingerprint(TWENTY[:count])) for count in (0, 1, 3, 4, 20)] == [
        (),
        (100,),
        (100,),
        (100, 103),
        (100, 103, 115),
    ]


@pytest.mark.parametrize(
    ("used", "matched", "shared"),
    [(0, 20, 0), (1, 20, 1), (3, 20, 1), (4, 20, 4), (16, 20, 20), (20, 20, 20), (4, 4, 4), (4, 3, 3), (20, 0, 0)],
)
def test_what_is_shared_with_a_prompt_in_flight(used: int, matched: int, shared: int) -> None:
    """Matched blocks are cached; of these, those up to a mark in use are shared."""
    active = ActivePrefixes()
    marks = marks_of(Fingerprint(TWENTY[:used]))
    for users in (3, 2, 1):
        active.use(marks)
        active.use(marks)
        active.use(marks)
        for _ in range(3 - users):
            active.end(marks)
        assert active.shared_blocks(Fingerprint(TWENTY), matched) == (shared, users if shared else 0)
        for _ in range(users):
            active.end(marks)
    assert (active.shared_blocks(Fingerprint(TWENTY), matched), len(active)) == ((0, 0), 0)


@pytest.mark.parametrize(
    ("used", "matched", "shared"),
    [(0, 19, 0), (1, 0, 1), (1, 3, 3), (1, 4, 1), (4, 0, 4), (4, 15, 15), (4, 19, 4), (16, 3, 16), (20, 19, 19)],
)
def test_what_others_still_use_of_a_prompt_that_ended(used: int, matched: int, shared: int) -> None:
    """It had twenty blocks. Others use a beginning, as far as what was cached if no mark says otherwise."""
    active = ActivePrefixes()
    active.use(marks_of(Fingerprint(TWENTY[:used])))
    assert active.still_used(marks_of(Fingerprint(TWENTY)), matched) == shared


def full(name: str, *, users: int) -> ServerState:
    """A cache of 10,000 tokens, of which 9,500 are in use; it has the twenty blocks, with so many users."""
    state = server(name, None, request(tokens=9_500))
    state.start(None, 9_500, 0.0)
    state.observe(LoadReport(0.0, kv_usage=0.95, block_tokens=16, blocks=625))
    state.prefixes.add(Fingerprint(TWENTY))
    for _ in range(users):
        state.active.use(marks_of(Fingerprint(TWENTY)))
    return state


def test_what_is_cached_but_idle_takes_room_again() -> None:
    """A prompt of 1,300 tokens, 1,280 of them cached. Idle ones wait for the only answer's end, which is 3 s away."""
    asked = request(tokens=1_300, blocks=TWENTY)
    other = server("c", LoadReport(0.0, kv_usage=0.5, block_tokens=16, blocks=625))
    assert choices(PredictedWait(), asked, full("a", users=9), other) == "a"
    assert choices(PredictedWait(), asked, full("b", users=0), other) == "c"


def half_full(name: str, users: int, tokens: int) -> ServerState:
    """A cache of 10,000 tokens with so many in use, the twenty blocks among them if there are users."""
    state = server(name, LoadReport(0.0, kv_usage=tokens / 10_000, block_tokens=16, blocks=625))
    state.prefixes.add(Fingerprint(TWENTY))
    for _ in range(users):
        state.active.use(marks_of(Fingerprint(TWENTY)))
    return state


def test_of_two_copies_of_a_beginning_the_one_with_fewer_users_drains() -> None:
    """1,280 tokens for 3 s. Five users let them stay for a sixth of that longer, one for half of it."""
    asked = request(tokens=1_300, blocks=TWENTY)
    assert choices(PredictedWait(), asked, half_full("a", 5, 5_100), half_full("b", 1, 5_000)) == "a"
    assert choices(PredictedWait(), asked, half_full("a", 5, 5_100), half_full("b", 0, 5_000)) == "a"
    assert choices(PredictedWait(), asked, half_full("a", 5, 8_000), half_full("b", 1, 3_000)) == "b"
    # While none is in use, either takes the room.
    assert choices(PredictedWait(), asked, half_full("a", 0, 5_100), half_full("b", 0, 5_000)) == "b"


def test_what_a_full_server_sent_back_to_its_queue_is_still_to_come() -> None:
    """Of twenty answers, five are told as waiting: their 2,500 tokens only look free."""

    def running(name: str, queued: int, unstarted: int) -> ServerState:
        placed = [request(tokens=500)] * 20
        state = server(name, None, *placed)
        for each in placed[unstarted:]:
            state.start(None, each.prompt_tokens, 0.0)
        state.observe(LoadReport(0.0, queued=queued, running=20 - queued, kv_usage=0.75, block_tokens=16, blocks=625))
        return state

    assert running("a", 5, 0).used_tokens == 7_500 + 5 * 500
    # Those that wait for their first token are counted as such, once.
    assert running("b", 5, 5).used_tokens == 7_500 + 5 * 500
    assert running("c", 0, 0).used_tokens == 7_500
    assert choices(PredictedWait(), request(tokens=600), running("a", 5, 0), running("c", 0, 0)) == "c"


def test_room_counts_for_as_long_as_answers_take() -> None:
    """640 tokens of a prompt are cached at the fuller server. It costs 0.064 s to compute them at the emptier one.

    Half full, a server's room costs 1.39 more than at a fifth: 0.042 s for 1 % of it and 3 s, 0.83 s for 60 s.
    """

    def chosen(expected_tokens: int) -> str:
        fuller, emptier = (
            server(name, LoadReport(0.0, kv_usage=usage, block_tokens=16, blocks=6_250))
            for name, usage in (("f", 0.5), ("e", 0.2))
        )
        fuller.prefixes.add(Fingerprint(TWENTY[:10]))
        asked = request(tokens=1_000, blocks=TWENTY[:10])
        made = PredictedWait().choose(SchedulingContext(asked, (fuller, emptier), expected_tokens, 0.0, Random(0)))
        assert isinstance(made, Choice)
        return made.server.endpoint.name

    assert (chosen(100), chosen(2_000)) == ("f", "e")


def test_a_scheduler_s_placements_are_under_way_from_their_first_token_on() -> None:
    scheduler = Scheduler("predicted-wait")
    pick = scheduler.pick(request(tokens=2_000, blocks=TWENTY), (endpoint("a"),), 0.0)
    assert isinstance(pick, Pick)
    state = scheduler.server(endpoint("a"))
    assert (state.room_tokens, len(state.active)) == (2_000, 3)
    pick.placement.first_token(1.0)
    assert (state.room_tokens, len(state.active)) == (0, 3)
    pick.placement.finish(None, 2.0)
    assert (state.room_tokens, len(state.active)) == (0, 0)


def test_an_answer_does_not_run_beside_itself() -> None:
    """A token takes 20 ms in an answer alone, and 10 ms more for each one beside it. The rest of a pace is learnt."""
    scheduler = Scheduler("predicted-wait")
    speed = scheduler.server(endpoint("a")).speed
    for others in [0, 4] * 200:
        made = [scheduler.pick(request(), (endpoint("a"),), 0.0) for _ in range(others + 1)]
        picks = [each for each in made if isinstance(each, Pick)]
        for each in reversed(picks):
            each.placement.first_token(0.0)
        picks[0].placement.finish(InstanceUsage(output_tokens=11), 0.2 + 0.1 * others)
        for each in picks[1:]:
            each.placement.finish(None, 1.0)
    assert speed.predict_pace(0) == pytest.approx(0.02, rel=0.02)
    assert speed.predict_pace(4) == pytest.approx(0.06, rel=0.02)
