"""What one key may use, by a clock that the test moves."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.fakes.set_clock import SetClock
from tg_base.config import ApiKey, GatewayConfig
from tg_base.protocol import EncodedRequest
from tg_gateway.access import RateLimits
from tg_gateway.access.rate_limits import MAX_SIDE_BY_SIDE, MIN_RETRY_AFTER_SECONDS, Spending
from tg_schema import (
    TEXT_COMPLETION,
    AgentRequest,
    ImagePart,
    Message,
    PromptRequest,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TextPart,
    Tool,
)  # fmt: skip
from tg_schema.errors import AccessDenied, BadRequest, RateLimited, Unauthorized, Unavailable
from tg_schema.prompt_size import TOKEN_BYTES, measure_text

ASKED = TextCompletionRequest(prompt="x")


@pytest.fixture
def clock() -> SetClock:
    return SetClock(1000.0)


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Requests that go on until the end of the test."""
    with ExitStack() as stack:
        yield stack


def limits(clock: SetClock, **said: Any) -> RateLimits:
    reserve = said.pop("reserve_tokens", 1024)
    key = ApiKey(name="k", sha256="0" * 64, **said)
    return RateLimits(GatewayConfig(keys=(key,), reserve_tokens=reserve), clock)


def ask(limits: RateLimits, request: object = ASKED, used: TextCompletionResponse | None = None) -> None:
    """One request, from its beginning to its end."""
    with limits.admit("k", "text-completion", request) as spending:
        began(spending)
        if used is not None and spending.usage is not None:
            spending.usage.add(used)


def began(spending: Spending, size: int = 40) -> None:
    spending.asked = True
    if spending.usage is not None:
        spending.usage.request_bytes = size


def fail(limits: RateLimits) -> None:
    with limits.admit("k", "text-completion", most(60)) as spending:
        began(spending)
        raise Unavailable("gone")


def wait_of(limits: RateLimits, *requests: object) -> float:
    """How long a request, or a batch of several, is told to wait; 0 = it may come."""
    try:
        with limits.admit("k", "text-completion", *(requests or (ASKED,))):
            return 0.0
    except RateLimited as refused:
        return refused.retry_after or float("nan")


def most(tokens: int) -> TextCompletionRequest:
    return TextCompletionRequest(prompt="x", sampling=Sampling(max_tokens=tokens))


def test_requests_per_minute(clock: SetClock) -> None:
    it = limits(clock, requests_per_minute=2)
    ask(it)
    ask(it)
    assert wait_of(it) == 30
    clock.now += 29
    assert wait_of(it) == 1
    clock.now += 1
    assert wait_of(it) == 0
    ask(it)
    assert wait_of(it) == 30


def test_streams_side_by_side(clock: SetClock, running: ExitStack) -> None:
    it = limits(clock, streams=2)
    began(running.enter_context(it.admit("k", "prompt", ASKED)))
    with it.admit("k", "text-completion", ASKED) as second:
        began(second)
        assert wait_of(it) == MIN_RETRY_AFTER_SECONDS
        clock.now += 10
    assert wait_of(it) == 0
    began(running.enter_context(it.admit("k", "prompt", ASKED)))
    assert wait_of(it) == 10 / 2


@pytest.mark.parametrize("sampling", [Sampling(n=2), Sampling(n=1, best_of=2)])
def test_answers_side_by_side_count_each(clock: SetClock, running: ExitStack, sampling: Sampling) -> None:
    two = TextCompletionRequest(prompt="x", sampling=sampling)
    it = limits(clock, streams=3)
    began(running.enter_context(it.admit("k", "text-completion", ASKED)))
    with it.admit("k", "text-completion", two) as both:
        began(both)
        assert wait_of(it) == MIN_RETRY_AFTER_SECONDS
        clock.now += 1
    assert wait_of(it) == 0
    began(running.enter_context(it.admit("k", "text-completion", ASKED)))
    assert wait_of(it) == 0
    assert wait_of(it, two) > 0
    with pytest.raises(BadRequest, match=r"this key may have 1 answers side by side"):
        wait_of(limits(clock, streams=1), two)


def test_the_seconds_are_those_of_the_answers_that_run(clock: SetClock, running: ExitStack) -> None:
    it = limits(clock, streams=2)
    with it.admit("k", "text-completion", ASKED) as quick:
        began(quick)
        clock.now += 0.306
    for _ in range(2):
        began(running.enter_context(it.admit("k", "text-completion", ASKED)))
    # What came before was quicker than any client should come back.
    assert wait_of(it) == MIN_RETRY_AFTER_SECONDS
    # Nobody knows how long they take, but that no place was free for so long.
    clock.now += 20
    assert wait_of(it) == 20


def test_each_answer_of_a_batch_is_a_request_in_as_many_places_as_the_key_has(clock: SetClock) -> None:
    two = TextCompletionRequest(prompt="x", sampling=Sampling(n=2, max_tokens=10))
    it = limits(clock, streams=5, requests_per_minute=20, tokens_per_minute=1000)
    with it.admit("k", "text-completion", *[two] * 9) as batch:
        began(batch)
        assert (batch.places, batch.answers, batch.reserved) == (2, 4, 9 * 2 * 10)
    it = limits(clock, requests_per_minute=20)
    with it.admit("k", "text-completion", *[two] * 9) as batch:
        began(batch)
        assert wait_of(it, *[ASKED] * 2) == 0
        assert wait_of(it, *[ASKED] * 3) == 3
    clock.now += 60
    with pytest.raises(Unavailable), it.admit("k", "text-completion", *[two] * 9):
        raise Unavailable("nobody serves this")
    assert wait_of(it, *[ASKED] * 20) == 0


def test_a_batch_of_more_than_a_minutes_requests_owes_the_rest(clock: SetClock) -> None:
    it = limits(clock, requests_per_minute=6)
    with it.admit("k", "text-completion", *[ASKED] * 12) as batch:
        began(batch)
    assert wait_of(it) == 70
    it = limits(clock)
    for count, places in ((1, 1), (3, 3), (100, MAX_SIDE_BY_SIDE)):
        with it.admit("k", "text-completion", *[ASKED] * count) as batch:
            assert batch.places == places


def test_tokens_of_each_answer_are_reserved(clock: SetClock) -> None:
    it = limits(clock, tokens_per_minute=600)
    request = TextCompletionRequest(prompt="x", sampling=Sampling(max_tokens=100, n=5))
    with it.admit("k", "text-completion", request) as first:
        began(first)
        assert wait_of(it, most(100)) == 0
        assert wait_of(it, most(101)) == pytest.approx(0.1)


@pytest.mark.parametrize("encoded", [False, True])
def test_prompts_are_reserved_before_they_are_counted(clock: SetClock, running: ExitStack, encoded: bool) -> None:
    it = limits(clock, tokens_per_minute=600)
    long = TextCompletionRequest(prompt="word " * 20_000, sampling=Sampling(max_tokens=1))
    asked = EncodedRequest.of(TEXT_COMPLETION, long) if encoded else long
    began(running.enter_context(it.admit("k", "text-completion", asked)))
    assert {wait_of(it, asked) for _ in range(200)} == {60}
    it = limits(clock, tokens_per_minute=60_000)
    began(running.enter_context(it.admit("k", "text-completion", asked)))
    assert wait_of(it, asked) == 0
    assert wait_of(it, asked, asked) == pytest.approx((25_001 * 3 - 60_000) / 1000)


@pytest.mark.parametrize(
    ("request_", "size"),
    [
        (TextCompletionRequest(system="ab", prompt="cde"), 5),
        (TextCompletionRequest(prompt="é\ud800"), 3),
        (TextCompletionRequest(prompt_ids=(1, 2, 3), id_lists=((4, 5), (6,))), 6 * TOKEN_BYTES),
        (TextCompletionRequest(texts=("abc", "de"), choice=("f",)), 6),
        (TextCompletionRequest(tools=(Tool("t", "does", {"type": "object"}),)), 1 + 4 + 4 + 6),
        (PromptRequest(id="x", terms={"k": "abc"}), 1 + 1 + 3),
        (AgentRequest(question="why?"), 4),
    ],
)
def test_the_text_of_a_request_is_measured(request_: Any, size: int) -> None:
    assert measure_text(request_) == size


def test_an_image_has_the_tokens_of_an_image_whatever_its_file(clock: SetClock) -> None:
    def shown(data: str) -> int:
        message = Message("user", (TextPart("what?"), ImagePart(data=data)))
        return measure_text(TextCompletionRequest(messages=(message,)))

    assert shown("x" * 1_000_000) == shown("x") > 4000


@pytest.mark.parametrize(
    "request_", [ASKED, PromptRequest(id="x"), TextCompletionRequest(prompt="x", sampling=Sampling(temperature=1))]
)
def test_a_request_that_does_not_say_reserves_the_default(clock: SetClock, request_: object) -> None:
    it = limits(clock, tokens_per_minute=60, reserve_tokens=40)
    with it.admit("k", "text-completion", request_) as first:
        began(first)
        assert wait_of(it, most(20)) == 0
        assert wait_of(it, most(21)) == 1


def test_a_reservation_over_the_whole_minute_is_the_whole_minute(clock: SetClock) -> None:
    it = limits(clock, tokens_per_minute=60)
    with it.admit("k", "text-completion", most(1_000_000)) as first:
        began(first)
        assert wait_of(it, most(1_000_000)) == 60
    assert wait_of(it, most(50)) == 0


@pytest.mark.parametrize("nonsense", [-1_000_000, 0])
def test_a_reservation_gives_nothing(clock: SetClock, nonsense: int) -> None:
    it = limits(clock, tokens_per_minute=60, reserve_tokens=60)
    with it.admit("k", "text-completion", most(nonsense)) as first:
        began(first)
        assert wait_of(it, most(60)) >= 1


def test_a_failure_before_the_first_text_costs_no_tokens(clock: SetClock) -> None:
    it = limits(clock, tokens_per_minute=60, requests_per_minute=10)
    with pytest.raises(Unavailable):
        fail(it)
    assert wait_of(it, most(60)) == 0


def test_the_longest_wait_counts_and_a_refusal_takes_nothing(clock: SetClock) -> None:
    it = limits(clock, tokens_per_minute=60, requests_per_minute=2)
    ask(it, most(1), used=TextCompletionResponse(out_token=60, end_of_stream=True))
    for _ in range(5):
        assert wait_of(it, most(60)) == 60
    clock.now += 60
    ask(it, most(1))
    assert wait_of(it, most(1)) == 0


def test_keys_without_limits_and_nobody_are_let_in(clock: SetClock) -> None:
    it = limits(clock)
    with it.admit("k", "text-completion", ASKED) as spending:
        assert spending.usage is None
    assert it.exempt == {"anybody", None}


def test_a_key_called_anybody_has_its_limits(clock: SetClock) -> None:
    it = RateLimits(GatewayConfig(keys=(ApiKey(name="anybody", sha256="0" * 64),)), clock)
    assert "anybody" not in it.exempt


def test_keys_of_one_name_share(clock: SetClock) -> None:
    keys = tuple(ApiKey(name="k", sha256=digit * 64, requests_per_minute=1) for digit in "01")
    it = RateLimits(GatewayConfig(keys=keys), clock)
    ask(it)
    assert wait_of(it) == 60


def edited(**said: Any) -> GatewayConfig:
    """The same key with other limits."""
    reserve = said.pop("reserve_tokens", 1024)
    return GatewayConfig(keys=(ApiKey(name="k", sha256="0" * 64, **said),), reserve_tokens=reserve)


def test_a_raised_limit_holds_at_once_and_what_is_spent_stays(clock: SetClock) -> None:
    it = limits(clock, requests_per_minute=2)
    ask(it)
    ask(it)
    assert wait_of(it) == 30
    it.update(edited(requests_per_minute=3))
    assert wait_of(it) == 0
    ask(it)
    assert wait_of(it) == 20


def test_a_lowered_limit_leaves_nothing_but_no_debt(clock: SetClock) -> None:
    it = limits(clock, requests_per_minute=10)
    for _ in range(5):
        ask(it)
    it.update(edited(requests_per_minute=6))
    ask(it)
    assert wait_of(it) == 10
    it.update(edited(requests_per_minute=2))
    assert wait_of(it) == 30


def test_what_is_owed_stays_owed(clock: SetClock) -> None:
    it = limits(clock, tokens_per_minute=60)
    ask(it, most(1), used=TextCompletionResponse(in_token=100, out_token=20, end_of_stream=True))
    it.update(edited(tokens_per_minute=30))
    assert wait_of(it, most(1)) == 61 * 2
    it.update(edited(tokens_per_minute=120))
    assert wait_of(it, most(31)) == 0.5


def test_a_request_that_runs_is_settled_by_the_new_limits(clock: SetClock) -> None:
    it = limits(clock, tokens_per_minute=60)
    with it.admit("k", "text-completion", most(60)) as first:
        began(first)
        it.update(edited(tokens_per_minute=120))
        assert wait_of(it, most(60)) == 0
        assert wait_of(it, most(61)) == 0.5
        assert first.usage is not None
        first.usage.add(TextCompletionResponse(out_token=10, end_of_stream=True))
    assert wait_of(it, most(110)) == 0


def test_what_runs_counts_for_a_key_that_had_no_limits(clock: SetClock, running: ExitStack) -> None:
    it = limits(clock)
    began(running.enter_context(it.admit("k", "prompt", ASKED)))
    it.update(edited(streams=1))
    assert wait_of(it) == MIN_RETRY_AFTER_SECONDS
    it.update(edited())
    assert wait_of(it) == 0


def test_a_key_that_comes_back_has_what_it_had_left(clock: SetClock, running: ExitStack) -> None:
    it = limits(clock, requests_per_minute=2, streams=1)
    began(running.enter_context(it.admit("k", "prompt", ASKED)))
    it.update(GatewayConfig())
    with pytest.raises(Unauthorized):
        wait_of(it)
    it.update(edited(requests_per_minute=2, streams=1))
    assert wait_of(it) == MIN_RETRY_AFTER_SECONDS
    running.close()
    ask(it)
    it.update(GatewayConfig())
    it.update(edited(requests_per_minute=2, streams=1))
    assert wait_of(it) == 30


def test_the_groups_are_followed(clock: SetClock) -> None:
    it = limits(clock)
    key = ApiKey(name="k", sha256="0" * 64, groups=("sales",))
    it.update(GatewayConfig(keys=(key,)))
    with pytest.raises(AccessDenied, match="name sales"):
        wait_of(it, AgentRequest(question="x"))
    it.update(edited())
    assert wait_of(it, AgentRequest(question="x")) == 0


def test_the_reservation_is_followed(clock: SetClock) -> None:
    it = limits(clock, tokens_per_minute=60, reserve_tokens=60)
    it.update(edited(tokens_per_minute=60, reserve_tokens=10))
    with it.admit("k", "text-completion", ASKED) as first:
        began(first)
        assert wait_of(it, most(50)) == 0
