from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_llama.engine.prompt_budget import (
    ALONE_SECONDS,
    BESIDE_STEPS,
    MAX_MIXED_STEPS,
    MIN_ALONE_TOKENS,
    MIN_BESIDE_SECONDS,
    MIN_BESIDE_TOKENS,
    PromptBudget,
)

MOST = 512
WARM_STEPS = 50


class _Machine:
    """A model on a machine: a step takes `fixed` seconds, and more for each row."""

    def __init__(self, fixed: float, answer: float, token: float) -> None:
        self.budget = PromptBudget(MOST)
        self.fixed, self.answer, self.token = fixed, answer, token

    def step(self, answers: int, *, prompt: bool) -> tuple[int, float]:
        tokens = self.budget.tokens(answers=answers, prompts=1) if prompt else 0
        seconds = self.fixed + answers * self.answer + tokens * self.token
        self.budget.learn(seconds, answers=answers, prompt_tokens=tokens)
        return tokens, seconds

    def mixed_step(self, answers: int) -> tuple[int, float]:
        """A step with prompt tokens; one in which the answers alone are measured comes before it now and then."""
        tokens, seconds = self.step(answers, prompt=True)
        return (tokens, seconds) if tokens else self.step(answers, prompt=True)


@given(st.floats(1e-5, 1), st.floats(1e-6, 0.1), st.floats(1e-6, 0.1), st.integers(1, 16))
def test_beside_answers_a_step_lasts_a_small_multiple_of_theirs(
    fixed: float, answer: float, token: float, answers: int
) -> None:
    machine = _Machine(fixed, answer, token)
    tokens, seconds = [machine.mixed_step(answers) for _ in range(WARM_STEPS)][-1]
    limit = max(MIN_BESIDE_SECONDS, BESIDE_STEPS * machine.step(answers, prompt=False)[1])
    assert tokens in {MIN_BESIDE_TOKENS, MOST} or seconds <= 1.1 * limit + token
    assert tokens in {MIN_BESIDE_TOKENS, MOST} or seconds >= 0.5 * limit - token, "no time is wasted"


@given(st.integers(1, 15), st.integers(1, 15))
def test_many_prompts_beside_few_answers_get_more_of_the_time(answers: int, prompts: int) -> None:
    machine = _Machine(0.01, 0.004, 0.0001)
    for _ in range(WARM_STEPS):
        machine.mixed_step(answers)
    one, several = [machine.budget.tokens(answers=answers, prompts=count) for count in (1, prompts)]
    assert several >= one
    if prompts > (BESIDE_STEPS - 1) * answers:
        alone = 0.01 + answers * 0.004
        assert several == pytest.approx(min(MOST, prompts / answers * alone / 0.0001), rel=0.1, abs=1)


@given(st.lists(st.integers(1, 16), min_size=1, max_size=200))
def test_however_many_answers_come_and_go_prompts_have_their_half_of_the_time(counts: list[int]) -> None:
    machine = _Machine(0.01, 0.004, 0.002)
    for _ in range(WARM_STEPS):
        machine.step(0, prompt=True)
    steps = [machine.mixed_step(answers) for answers in counts]
    assert all(0.3 * seconds <= tokens * machine.token <= 0.7 * seconds for tokens, seconds in steps)


def test_the_answers_own_step_is_measured_now_and_then_while_prompts_go_on() -> None:
    machine = _Machine(0.01, 0.004, 0.002)
    steps = [machine.step(3, prompt=True)[0] for _ in range(4 * MAX_MIXED_STEPS)]
    assert steps.count(0) == 4
    assert not any(before == after == 0 for before, after in pairwise(steps)), "no prompt waits for two steps"


@given(st.floats(1e-5, 0.05), st.floats(1e-6, 0.1))
def test_with_nobody_to_wait_a_step_has_as_much_as_its_time_allows(fixed: float, token: float) -> None:
    machine = _Machine(fixed, 0, token)
    tokens, seconds = [machine.step(0, prompt=True) for _ in range(WARM_STEPS)][-1]
    assert tokens in {MIN_ALONE_TOKENS, MOST} or seconds <= 1.1 * ALONE_SECONDS + token


def test_the_first_step_is_short_whatever_the_model() -> None:
    assert PromptBudget(MOST).tokens(answers=0, prompts=1) == MIN_ALONE_TOKENS
    assert PromptBudget(16).tokens(answers=3, prompts=1) == 16


def test_one_slow_step_does_not_decide() -> None:
    machine = _Machine(0, 0, 1e-3)
    usual = [machine.step(0, prompt=True) for _ in range(WARM_STEPS)][-1][0]
    machine.budget.learn(10 * ALONE_SECONDS, answers=0, prompt_tokens=usual)
    assert usual / 2 < machine.budget.tokens(answers=0, prompts=1) < usual
