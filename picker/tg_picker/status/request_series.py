"""Records of requests -> metrics: the counts of each model, under the published names of pickers.

The names and labels are those of llm-d-router (`llm_d_epp_*`) and of the Gateway API Inference Extension
(`inference_objective_*`), where ours mean the same.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from tg_base.telemetry import Cells
from tg_picker.status.request_record import RequestRecord

# Fewer buckets than the published ones have: each is a line for each model, under two names, whenever somebody asks.
_LATENCIES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0)
_PACES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_TOKENS = (16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0)

HISTOGRAMS: Final[Mapping[str, tuple[str, tuple[float, ...]]]] = {
    "request_ttft_seconds": ("From the request to its first token", _LATENCIES),
    "request_tpot_seconds": ("From a token to the next, on average of an answer", _PACES),
    "request_duration_seconds": ("From the request to its answer's end", _LATENCIES),
    "normalized_time_per_output_token_seconds": ("Duration by tokens of the answer", _PACES),
    "input_tokens": ("Tokens of the prompt, as the server counted them", _TOKENS),
    "output_tokens": ("Tokens of the answer, as the server counted them", _TOKENS),
    "prompt_cached_tokens": ("Tokens of the prompt that came from the server's cache", _TOKENS),
}
"""Distributions of answered requests, by the ends of their older names."""
ERROR_CODES: Final[Mapping[int, str]] = {
    400: "BadRequest",
    404: "NotFound",
    413: "BadRequest",
    429: "ResourceExhausted",
    503: "ServiceUnavailable",
}
"""The published words for statuses; the others are a server's."""


class _Histograms(dict[str, Cells]):
    """Distributions by the ends of their names; made when something is counted."""

    def __missing__(self, name: str) -> Cells:
        return self.setdefault(name, Cells(HISTOGRAMS[name][1]))


class RequestSeries:
    """The counts of one model, as clients name it and as servers do.

    Attributes:
        requests: by priority.
        errors: by published word.
        violations: the violations of objectives, by `ttft` and `tpot`.
        running: picked and not ended.
        cells: distributions, by the ends of their names; one that nothing was counted in is not there.
    """

    __slots__ = ("cells", "errors", "requests", "running", "violations")

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        self.errors: dict[str, int] = {}
        self.violations: dict[str, int] = {}
        self.running = 0
        self.cells = _Histograms()

    def count_request(self, priority: int) -> None:
        """Count a request that came."""
        self.requests[priority] = self.requests.get(priority, 0) + 1

    def count_error(self, status: int) -> None:
        """Count a request that failed; 0 = without a status."""
        code = ERROR_CODES.get(status, "ModelServerError")
        self.errors[code] = self.errors.get(code, 0) + 1

    def observe(self, records: Sequence[RequestRecord]) -> None:
        """Count requests that were answered. Only these have distributions: failures of made-up names stay cheap."""
        # For an answer that came whole, the first token was not observed.
        self._observe("request_ttft_seconds", [each.first_token_seconds for each in records])
        durations = [(each.seconds or 0.0, each.usage) for each in records]
        self.cells["request_duration_seconds"].observe_all([seconds for seconds, _ in durations])
        paces = [each.output_token_seconds for each in records]
        self._observe("request_tpot_seconds", paces)
        counted = [usage for _, usage in durations if usage is not None]
        self._observe("input_tokens", [usage.prompt_tokens for usage in counted])
        self._observe("prompt_cached_tokens", [usage.cached_tokens for usage in counted])
        self._observe("output_tokens", [usage.output_tokens or None for usage in counted])
        normalized = [seconds / usage.output_tokens for seconds, usage in durations if usage and usage.output_tokens]
        self._observe("normalized_time_per_output_token_seconds", normalized)
        for record, pace in zip(records, paces, strict=True):
            if record.objective is not None:
                self._judge("ttft", record.first_token_seconds, record.objective.first_token)
                self._judge("tpot", pace, record.objective.output_token)

    def _observe(self, name: str, amounts: Sequence[float | None]) -> None:
        known = [amount for amount in amounts if amount is not None]
        if known:
            self.cells[name].observe_all(known)

    def _judge(self, kind: str, seconds: float | None, promised: float | None) -> None:
        if seconds is not None and promised is not None and seconds > promised:
            self.violations[kind] = self.violations.get(kind, 0) + 1
