"""Durations of steps -> how many prompt tokens the next one has, so that no answer waits long for its next token."""

ALONE_SECONDS = 0.25
"""Target duration of a step while nothing is answered: a cancel and newcomers wait for its end."""

BESIDE_STEPS = 2.0
"""Target duration of a step with a part of a prompt, as a multiple of one of its answers alone: half the time each.
If more prompts wait than answers run, the prompts get a share of the time that grows in proportion."""

MIN_BESIDE_SECONDS = 0.02
"""Seconds that a step with answers may always take; steps of small models are much shorter."""

MIN_BESIDE_TOKENS = 8
"""The fewest prompt tokens of a step with answers, however slow the model: half as many take nearly as long."""

MIN_ALONE_TOKENS = 32
"""The fewest prompt tokens of a step without answers, or before anything was measured."""

MAX_MIXED_STEPS = 32
"""Steps with prompts after which a step of the answers alone is measured again: it grows with their length."""

RISE, FALL = 1.1, 0.8
"""Bounds of an estimate's change by one step, as factors: one step may have waited for another process."""


class PromptBudget:
    """Belongs to the engine's thread.

    Every step has a token of each answer. Prompts are evaluated beside them in chunks that fit into the target
    duration, judging by earlier steps.
    """

    def __init__(self, most: int) -> None:
        """`most` is the largest number of tokens in a step."""
        self._most = most
        # By the number of answers: a step with sixteen takes several times as long as a step with one.
        self._answer_seconds: dict[int, float] = {}
        self._mixed_steps: dict[int, int] = {}
        self._token_seconds: float | None = None

    def tokens(self, *, answers: int, prompts: int) -> int:
        """The prompt tokens of the next step.

        Args:
            answers: how many answers continue in it.
            prompts: how many prompts are to be evaluated.

        Returns:
            0 if a step of the answers alone must be measured first; at least 1 without answers.
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
        """Take in how long a step took."""
        alone = self._answer_seconds.get(answers, 0.0)
        if not prompt_tokens:
            # Use the lowest of the latest times: other processes lengthen short steps most.
            self._answer_seconds[answers] = min(seconds, RISE * alone) if alone else seconds
            self._mixed_steps[answers] = 0
            return
        if alone:
            self._mixed_steps[answers] += 1
        if prompt_tokens >= MIN_BESIDE_TOKENS:
            # Subtract the time of the answers alone, so that short chunks measure a token's price as well as long ones.
            price = max(seconds - alone, seconds / 10) / prompt_tokens
            known = self._token_seconds
            self._token_seconds = price if known is None else min(max(price, FALL * known), RISE * known)
