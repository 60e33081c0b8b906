"""Answers of one service, model and flow -> their metrics, and the counts from which the live view makes rates."""

from tg_gateway.telemetry import CHUNK_GAP_SECONDS, FIRST_TOKEN_SECONDS, OVERHEAD_SECONDS, REQUEST_SECONDS


class AnswerMetrics:
    """The metrics of the answers of one service, model and flow.

    Attributes:
        name: the flow and the service.
        model: the given name; "" = none.
        first_token, gap, whole, overhead: times of answers.
        letters: characters of the text of all answers.
        errors: requests that ended with an error; one that a client or an operator has stopped does not count.
        before: what `counts` was at the beginning.
    """

    def __init__(self, service: str, model: str, flow: str) -> None:
        self.name, self.model = (flow, service), model
        self.first_token = FIRST_TOKEN_SECONDS.labels(service, model, flow)
        self.gap = CHUNK_GAP_SECONDS.labels(service, model, flow)
        self.whole = REQUEST_SECONDS.labels(service, model, flow)
        self.overhead = OVERHEAD_SECONDS.labels(service)
        self.letters = self.errors = 0
        self.before = self.counts

    @property
    def counts(self) -> tuple[int, ...]:
        """`letters`, `errors`, and how many first tokens were within each bound."""
        return self.letters, self.errors, *self.first_token.counts
