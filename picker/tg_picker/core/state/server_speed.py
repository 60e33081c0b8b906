"""First tokens and ends of requests -> scheduler: how fast one server is, learnt from its own answers."""

ASSUMED_FIRST_TOKEN_SECONDS = 0.05
"""For an empty prompt, until something is learnt."""
ASSUMED_PREFILL_TOKENS_PER_SECOND = 10_000.0
ASSUMED_OUTPUT_TOKEN_SECONDS = 0.03
FORGETTING = 0.97
"""Weight of all that is known when one more sample comes: about the last 33 count."""
_PRIOR_WEIGHT = 4.0
_PRIOR_PROMPT_TOKENS = 4_096.0
_MIN_SECONDS_PER_TOKEN, _MAX_SECONDS_PER_TOKEN = 1e-6, 1e-2


class ServerSpeed:
    """A line through (tokens to compute, seconds until the first token), and the mean pace of answers.

    Attributes:
        fixed_seconds: until the first token of an empty prompt.
        prompt_token_seconds: for each token to compute.
        output_token_seconds: from a token of an answer to the next.
    """

    __slots__ = ("_n", "_nn", "_nt", "_t", "_weight", "fixed_seconds", "output_token_seconds", "prompt_token_seconds")

    def __init__(self) -> None:
        self.fixed_seconds = ASSUMED_FIRST_TOKEN_SECONDS
        self.prompt_token_seconds = 1 / ASSUMED_PREFILL_TOKENS_PER_SECOND
        self.output_token_seconds = ASSUMED_OUTPUT_TOKEN_SECONDS
        # Two prior samples keep the first measurements from dominating the fit.
        half = _PRIOR_WEIGHT / 2
        long = self.fixed_seconds + _PRIOR_PROMPT_TOKENS * self.prompt_token_seconds
        self._weight = _PRIOR_WEIGHT
        self._n, self._nn = half * _PRIOR_PROMPT_TOKENS, half * _PRIOR_PROMPT_TOKENS**2
        self._t, self._nt = half * (self.fixed_seconds + long), half * _PRIOR_PROMPT_TOKENS * long

    def learn_first_token(self, tokens: int, seconds: float) -> None:
        """Note the seconds that a number of tokens took, those of earlier requests included."""
        self._weight = weight = FORGETTING * self._weight + 1
        self._n = n = FORGETTING * self._n + tokens
        self._t = t = FORGETTING * self._t + seconds
        self._nn = nn = FORGETTING * self._nn + tokens * tokens
        self._nt = nt = FORGETTING * self._nt + tokens * seconds
        spread = weight * nn - n * n
        if spread > 0:
            slope = (weight * nt - n * t) / spread
            self.prompt_token_seconds = min(max(slope, _MIN_SECONDS_PER_TOKEN), _MAX_SECONDS_PER_TOKEN)
        self.fixed_seconds = max((t - self.prompt_token_seconds * n) / weight, 0.0)

    def predict_first_token(self, tokens: int) -> float:
        """Seconds until the first token, where `tokens` of the prompt have to be computed."""
        return self.fixed_seconds + tokens * self.prompt_token_seconds

    def learn_output(self, tokens: int, seconds: float) -> None:
        """Note how long an answer took after its first token."""
        if tokens > 1 and seconds > 0:
            pace = seconds / (tokens - 1)
            self.output_token_seconds += (1 - FORGETTING) * (pace - self.output_token_seconds)
