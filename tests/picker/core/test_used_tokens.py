"""What a server has in its cache: as its last report says, with what was placed and what ended since."""

import pytest

from tests.picker.core.cases import choose, endpoint, request, server
from tg_picker.core import Fingerprint, InstanceUsage, LoadReport, Pick, Scheduler, ServerState
from tg_picker.core.policies.predicted_wait import PredictedWait
from tg_picker.core.state.active_prefixes import marks_of

TWENTY = tuple(range(100, 120))
HERE, ELSEWHERE = endpoint("here"), endpoint("elsewhere")


def report(usage: float, queued: int | None = 0, at: float = 0.0) -> LoadReport:
    """Of a cache of 10,000 tokens."""
    return LoadReport(at, queued=queued, running=1, kv_usage=usage, block_tokens=16, blocks=625)


def test_what_was_placed_counts_until_a_report_knows_of_it() -> None:
    """Its first token does not end that: the report was read before."""
    state = server("a", report(0.3), request(tokens=2_000))
    assert state.used_tokens == 5_000
    state.start(None, 2_000, 0.0)
    assert state.used_tokens == 5_000
    state.observe(report(0.5))
    assert state.used_tokens == 5_000


def test_a_queue_is_told_as_it_was_when_it_was_looked_at() -> None:
    """Of five that waited at 1.0 one began at 1.1, and one at 1.4. Looks are known later."""
    state = server("a", None, *[request()] * 5)
    state.start(None, 100, 1.1)
    state.observe(report(0.5, 5, at=1.0))
    assert state.queue == 4
    state.start(None, 100, 1.4)
    assert state.queue == 3
    state.observe(report(0.5, 3, at=1.5))
    assert state.queue == 3


@pytest.mark.parametrize(
    ("queued", "used"),
    [(0, 6_000), (1, 6_000 + 1_000), (4, 6_000 + 4_000), (None, 6_000 + 4_000)],
    ids=["all are computed", "one waits", "all wait", "untold"],
)
def test_a_prompt_that_is_computed_has_its_room_already(queued: int | None, used: int) -> None:
    """Four prompts of 1,000 tokens have no first token yet. Those that wait for room are not in use, the others are."""
    state = server("a", None, *[request(tokens=1_000)] * 4)
    state.observe(report(0.6, queued))
    assert state.used_tokens == used


def computing(name: str) -> ServerState:
    """Half of 10,000 tokens are in use, 4,000 of them by a prompt that is computed."""
    state = server(name, None, request(tokens=4_000))
    state.observe(report(0.5))
    return state


def test_a_prompt_goes_where_there_is_room_while_another_is_computed() -> None:
    """3,000 tokens fit at a, behind 0.4 s of prompts. At b, behind 0.3 s, an answer of 3 s has to end first."""
    full = server("b", report(0.85))
    full.uncached_tokens = 3_000
    assert choose(PredictedWait(), request(tokens=3_000), computing("a"), full) == "a"


def ended(*, answered: int | None, shared: bool = False) -> ServerState:
    """A server with 9,500 tokens in use, of which a request of 1,300 with an answer has ended since it told that."""
    state = server("a")
    asked, marks = request(tokens=1_300, blocks=TWENTY), marks_of(Fingerprint(TWENTY))
    uncached = 1_300 - 15 * 64 if shared else 1_300
    state.place(asked, uncached, 100, 0.0, marks=marks)
    if shared:
        state.active.use(marks_of(Fingerprint(TWENTY[:15])))
    state.start(None, uncached, 0.0)
    state.observe(report(0.95))
    state.release(None, 1_300, uncached, 100, marks, answered=answered or 0)
    return state


def test_what_ended_since_the_report_is_free() -> None:
    assert ended(answered=200).used_tokens == 9_500 - 1_300 - 200
    assert ended(answered=None).used_tokens == 9_500 - 1_300
    # Of twenty blocks another request uses fifteen.
    assert ended(answered=200, shared=True).used_tokens == 9_500 - (1_300 - 960) - 200


@pytest.mark.parametrize("answered", [10**6, 10**9])
def test_a_lie_about_an_answer_frees_no_more_than_all_and_lasts_until_the_next_report(answered: int) -> None:
    state = ended(answered=answered)
    assert state.used_tokens == 0
    state.observe(report(0.95))
    assert state.used_tokens == 9_500


@pytest.mark.parametrize(("ended_at", "chosen"), [(1.0, "here"), (0.9, "elsewhere")])
def test_the_next_turn_of_a_conversation_finds_the_room_of_the_last_one(ended_at: float, chosen: str) -> None:
    """Its 6,400 tokens are cached here, and take 0.64 s elsewhere.

    Of 10,000 tokens here 6,500 were in use at 0.95 s: the last turn's, or those of others if it had ended by then.
    Others would have to end first.
    """
    scheduler, blocks = Scheduler("predicted-wait"), tuple(range(100))
    last = scheduler.pick(request(tokens=6_400, blocks=blocks), (HERE,), 0.0)
    assert isinstance(last, Pick)
    last.placement.first_token(0.7)
    for now in sorted((ended_at, 0.95)):
        if now == ended_at:
            last.placement.finish(InstanceUsage(output_tokens=10), now)
        else:
            scheduler.observe(HERE, report(0.65, at=now))
            scheduler.observe(ELSEWHERE, report(0.2, at=now))
    following = scheduler.pick(request(tokens=6_500, blocks=(*blocks, 7)), (HERE, ELSEWHERE), 1.0)
    assert isinstance(following, Pick)
    assert following.endpoint.name == chosen
