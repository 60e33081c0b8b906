"""Durations of steps -> how many prompt tokens the next one has, so that no answer waits long for its next token."""

ALONE_SECONDS = 0.25
"""Target duration of a step while nothing is answered: a cancel and newcomers wait for its end."""

BESIDE_STEPS = 4.0
"""Target duration of a step beside answers, by that of a step of these answers alone."""

MIN_BESIDE_SECONDS = 0.05
"""Duration up to which a step beside answers may last in any case: steps of small models are much shorter."""

MIN_BESIDE_TOKENS = 16
"""Prompt tokens of a step beside answers at least, however slow the model: each of fewer costs half as much again."""

MIN_ALONE_TOKENS = 32
"""The same while nothing is answered, and before anything was measured."""

RISE = 1.1
"""By how much an estimate rises at most when a step was slower: one step may have waited for another process."""


class PromptBudget:
    """Belongs to the engine's thread.

    Every step has a token of each answer. A prompt is evaluated beside them in chunks of as many tokens as fit into the
    target duration, which follows from the steps before.
    """

    def __init__(self, most: int) -> None:
        """`most` is the number of tokens of a step at most."""
        self._most = most
        self._answer_seconds: float | None = None
        self._token_seconds: float | None = None

    def tokens(self, *, answers: int) -> int:
        """The prompt tokens of the next step, in which so many answers go on; at least one."""
        if self._token_seconds is None:
            return min(self._most, MIN_ALONE_TOKENS)
        seconds, least = ALONE_SECONDS, MIN_ALONE_TOKENS
        if answers:
            seconds = max(MIN_BESIDE_SECONDS, BESIDE_STEPS * (self._answer_seconds or 0.0))
            least = MIN_BESIDE_TOKENS
        return min(self._most, max(least, int(seconds / self._token_seconds)))

    def learn(self, seconds: float, *, prompt_tokens: int) -> None:
        """Take in how long a step took."""
        if not prompt_tokens:
            self._answer_seconds = _raised(self._answer_seconds, seconds)
        elif prompt_tokens >= MIN_BESIDE_TOKENS:
            # The time of fewer says nothing about prompts. With the time of the answers beside them: step by step, that
            # leads to steps of the target duration.
            self._token_seconds = _raised(self._token_seconds, seconds / prompt_tokens)


def _raised(estimate: float | None, measured: float) -> float:
    # Near the lowest of late: what other processes take from a step stretches the short ones most.
    return measured if estimate is None else min(measured, RISE * estimate)
