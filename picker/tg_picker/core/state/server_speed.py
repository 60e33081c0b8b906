"""First tokens and ends of requests -> scheduler: how fast servers are, learnt from their answers.

Servers of the same models (or with the same labels, if they report no models) are assumed to be equally fast: a
measurement of one counts for all of them (`EngineSpeed`). A server's own speed is a factor on that (`ServerSpeed`). The
factor counts only as far as it is statistically certain, and fades over FADE_SECONDS. So one cold start or stall
hardly counts, and a server that was slow once is tried again.
"""

from math import copysign, exp, log, sqrt

from tg_picker.core.interface import Objective

ASSUMED_FIRST_TOKEN_SECONDS = 0.05
"""Assumed seconds until the first token of an empty prompt, before one was measured."""
ASSUMED_PREFILL_TOKENS_PER_SECOND = 10_000.0
ASSUMED_OUTPUT_TOKEN_SECONDS = 0.03
FORGETTING = 0.97
"""Weight of all earlier samples when a new one is added: about the last 33 samples count."""
FADE_SECONDS = 20.0
"""Seconds after which a server's own factor counts for 1 / e. The knowledge of its seats fades more slowly."""
OUTLIER_FACTOR = 4.0
"""A time that is more than this many times the predicted one counts as exactly that much: it may be a cold start or a
stall. A request that waits longer is overdue."""
SOON_SHARE = 0.5
"""A first token within this share of its objective is soon; the rest is a reserve for unforeseen delays."""
IDLE_FACTOR = 2.0
"""A first token is also soon if it takes at most this many times the time on an idle server: then other requests are
not the cause."""
DEFAULT_OBJECTIVE_SECONDS = 2.0
"""Assumed objective for a first token if there is none."""
LOAD_SECONDS = 0.4
"""Assumed seconds to load an adapter: about a gigabyte, by the measurements of llm-d-router's load state scorer."""
_PRIOR_PROMPT_TOKENS = 4_096.0
_PRIOR_RUNNING = 64.0


class _Line:
    """A regression line through pairs of numbers, in which recent pairs weigh most. It never falls or is below 0."""

    def __init__(self, at_zero: float, slope: float, far: float) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0
        self.at_zero, self.slope = at_zero, slope
        # Prior pairs keep the first measurements from dominating the fit.
        for x in (0.0, 0.0, far, far):
            self.add(x, at_zero + slope * x)

    def add(self, x: float, y: float) -> None:
        self._weight = weight = FORGETTING * self._weight + 1
        self._x = sum_x = FORGETTING * self._x + x
        self._y = sum_y = FORGETTING * self._y + y
        self._xx = xx = FORGETTING * self._xx + x * x
        self._xy = xy = FORGETTING * self._xy + x * y
        spread = weight * xx - sum_x * sum_x
        if spread > 0:
            self.slope = max((weight * xy - sum_x * sum_y) / spread, 0.0)
        self.at_zero = max((sum_y - self.slope * sum_x) / weight, 0.0)

    def __call__(self, x: float) -> float:
        return self.at_zero + self.slope * x


class EngineSpeed:
    """Measured speed of all servers of a model: first tokens by the tokens to compute, pace by the running answers.

    Attributes:
        standstill: the share of an adapter's load during which all other work stands still.
    """

    def __init__(self) -> None:
        seconds, pace = 1 / ASSUMED_PREFILL_TOKENS_PER_SECOND, ASSUMED_OUTPUT_TOKEN_SECONDS
        self.first = _Line(ASSUMED_FIRST_TOKEN_SECONDS, seconds, _PRIOR_PROMPT_TOKENS)
        self.output = _Line(pace, pace / _PRIOR_RUNNING, _PRIOR_RUNNING)
        self.standstill = 1.0
        self._load_seconds = self._stood_seconds = LOAD_SECONDS

    def learn_load(self, ahead: float, late: float) -> None:
        """Note that a first token was `late` seconds late, on a server where loads of `ahead` seconds were pending."""
        self._load_seconds = FORGETTING * self._load_seconds + ahead
        self._stood_seconds = FORGETTING * self._stood_seconds + min(max(late, 0.0), ahead)
        self.standstill = self._stood_seconds / self._load_seconds


class _Factor:
    """The factor by which a server is slower than others of its model, as far as measurements prove it."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0
        self.value = 1.0

    def scale(self, kept: float) -> None:
        self._sum *= kept
        self._weight *= kept
        # One sample may be wrong by the largest permitted factor, the mean of n samples by 1 / sqrt(n) of that.
        sure = max(abs(self._sum) - log(OUTLIER_FACTOR) * sqrt(self._weight), 0.0)
        self.value = exp(copysign(sure, self._sum) / self._weight) if sure else 1.0

    def learn(self, line: _Line, x: float, y: float) -> None:
        """Note a time. The line of all servers learns it divided by this server's own factor, if that is slow.

        The line learns a fast server's time unchanged: otherwise, after a cold start of all servers, the first warm one
        would remain the only fast one.
        """
        expected = line(x)
        line.add(x, y / max(self.value, 1.0))
        if expected > 0 and y > 0:
            self._sum = FORGETTING * self._sum + log(min(max(y / expected, 1 / OUTLIER_FACTOR), OUTLIER_FACTOR))
            self._weight = FORGETTING * self._weight + 1
            self.scale(1.0)


class ServerSpeed:
    """How fast one server is: its own factors, applied to its `engine`, which all servers of its model share."""

    def __init__(self, engine: EngineSpeed | None = None) -> None:
        self.engine = EngineSpeed() if engine is None else engine
        self._first, self._output = _Factor(), _Factor()
        self._at = 0.0
        self._outlier_at = float("-inf")

    @property
    def fixed_seconds(self) -> float:
        """Seconds until the first token of an empty prompt."""
        return self._first.value * self.engine.first.at_zero

    @property
    def prompt_token_seconds(self) -> float:
        """Seconds for each token that must be computed."""
        return self._first.value * self.engine.first.slope

    @property
    def output_token_seconds(self) -> float:
        """Seconds from one token of an answer to the next if the answer runs alone."""
        return self._output.value * self.engine.output.at_zero

    @property
    def crowd_seconds(self) -> float:
        """Seconds that this takes longer for each other answer that runs at the same time."""
        return self._output.value * self.engine.output.slope

    def fade(self, now: float) -> None:
        """Let this server's own factors fade towards the measurements of the other servers."""
        kept = exp(min(self._at - now, 0.0) / FADE_SECONDS)
        self._at = now
        self._first.scale(kept)
        self._output.scale(kept)

    def predict_first_token(self, tokens: int, *, is_behind: bool = False) -> float:
        """Predict the seconds until a first token.

        Args:
            tokens: tokens of prompts that must be computed until then.
            is_behind: whether some of these tokens are other requests'. Those take one step, and this request the next.
        """
        return self.fixed_seconds * (2 if is_behind else 1) + tokens * self.prompt_token_seconds

    def is_soon(self, seconds: float, tokens: int, objective: Objective | None) -> bool:
        """Whether a first token is not late because of other requests on the server.

        Args:
            seconds: seconds until the first token, predicted or measured.
            tokens: tokens of the request's own prompt that must be computed.
            objective: the request's objectives; None = none.
        """
        bound = None if objective is None else objective.first_token
        share = SOON_SHARE * (DEFAULT_OBJECTIVE_SECONDS if bound is None else bound)
        return seconds <= max(share, IDLE_FACTOR * self.predict_first_token(tokens))

    def is_overdue(self, seconds: float, tokens: int) -> bool:
        """Whether a request that has waited for `seconds` waits for more than the computation of `tokens`."""
        return seconds > OUTLIER_FACTOR * self.predict_first_token(tokens, is_behind=True)

    def predict_pace(self, beside: float) -> float:
        """Predict the seconds from one token of an answer to the next while `beside` other answers run."""
        return self.output_token_seconds + self.crowd_seconds * beside

    def learn_first_token(self, tokens: int, seconds: float, now: float, *, is_behind: bool = False) -> None:
        """Note the seconds that a number of tokens took until now; see `predict_first_token`."""
        most = OUTLIER_FACTOR * self.predict_first_token(tokens, is_behind=is_behind)
        if seconds > most:
            if now - seconds < self._outlier_at:
                return  # A stall delays all requests that were placed before its end, but counts only once.
            self._outlier_at = now
        step = self.fixed_seconds if is_behind else 0.0
        self._first.learn(self.engine.first, tokens, max(min(seconds, most) - step, 0.0))

    def learn_output(self, tokens: int, seconds: float, running: float) -> None:
        """Note how long an answer took after its first token, and how many other answers ran meanwhile."""
        if tokens > 1 and seconds > 0:
            pace = min(seconds / (tokens - 1), OUTLIER_FACTOR * self.predict_pace(running))
            self._output.learn(self.engine.output, running, pace)
