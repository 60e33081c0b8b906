"""Durations of steps -> how many prompt tokens the next step evaluates, so that no answer waits long for a token."""

ALONE_SECONDS = 0.25
"""Target duration of a step without answers, in seconds: a cancel and new requests wait for its end."""

BESIDE_STEPS = 2.0
"""Target duration of a step with answers and prompts, as a multiple of a step with the same answers alone. So prompts
get half of the time; if more prompts wait than answers run, their share grows in proportion."""

MIN_BESIDE_SECONDS = 0.02
"""Seconds that a step with answers may always take, since a small model's steps are much shorter."""

MIN_BESIDE_TOKENS = 8
"""The fewest prompt tokens of a step with answers, however slow the model: half as many would take nearly as long."""

MIN_ALONE_TOKENS = 32
"""The fewest prompt tokens of a step without answers, or before anything has been measured."""

MAX_MIXED_STEPS = 32
"""Steps with prompts after which the answers alone are measured again, because their step grows with their length."""

RISE, FALL = 1.1, 0.8
"""Bounds of an estimate's change by one step, as factors, because one step may have waited for another process."""


class PromptBudget:
    """Limits the prompt tokens of each step. Belongs to the engine's thread.

    Every step has one token of each answer. Prompts are evaluated in the same steps, in chunks that should fit into the
    target duration by the measured durations of earlier steps.
    """

    def __init__(self, most: int) -> None:
        """`most` is the largest number of tokens in a step."""
        self._most = most
        # Keyed by the number of answers: a step with sixteen takes several times as long as a step with one.
        self._answer_seconds: dict[int, float] = {}
        self._mixed_steps: dict[int, int] = {}
        self._token_seconds: float | None = None

    def tokens(self, *, answers: int, prompts: int) -> int:
        """The prompt tokens of the next step.

        Args:
            answers: how many answers get a token in it.
            prompts: how many prompts are to be evaluated.

        Returns:
            0 if a step with only answers must be measured first; at least 1 without answers.
        """
        price = self._token_seconds
        if price is None:
            return min(self._most, MIN_ALONE_TOKENS)
        if not answers:
            return min(self._most, max(MIN_ALONE_TOKENS, int(ALONE_SECONDS / price)))
        alone = self._answer_seconds.get(answers)
        if alone is None or self._mixed_steps[answers] >= MAX_MIXED_STEPS:
            return 0
        target = alone * max(BESIDE_STEPS, 1 + prompts / answers)
        room = max(MIN_BESIDE_SECONDS, target) - alone
        return min(self._most, max(MIN_BESIDE_TOKENS, int(room / price)))

    def learn(self, seconds: float, *, answers: int, prompt_tokens: int) -> None:
        """Learn from the duration of a step."""
        alone = self._answer_seconds.get(answers, 0.0)
        if not prompt_tokens:
            # Use the lowest recent duration: other processes lengthen short steps most.
            self._answer_seconds[answers] = min(seconds, RISE * alone) if alone else seconds
            self._mixed_steps[answers] = 0
            return
        if alone:
            self._mixed_steps[answers] += 1
        if prompt_tokens >= MIN_BESIDE_TOKENS:
            # Subtract the duration of the answers alone, so that short chunks measure the cost of a token as well.
            price = max(seconds - alone, seconds / 10) / prompt_tokens
            known = self._token_seconds
            self._token_seconds = price if known is None else min(max(price, FALL * known), RISE * known)
