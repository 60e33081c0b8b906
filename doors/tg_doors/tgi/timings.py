"""The clocks of one request -> TGI's headers."""

import math
import time
from typing import Final

from tg_base.protocol import ACCEPTED_AFTER_SECONDS

COMPUTE_TYPE: Final = "unknown"
"""`x-compute-type`: TGI says on which hardware it runs; a gateway does not know on which its processors do."""


class Timings:
    """The clocks of one request, from when its body was read.

    A processor does not report when it begins, only its first record, or that it has worked for
    `ACCEPTED_AFTER_SECONDS`. So the time in the queue is exact for long answers. For an answer that is quicker it may
    be short by these seconds, and is 0 where all of it took no longer.
    """

    def __init__(self) -> None:
        # Do not use the wall clock, which may be set while an answer is made.
        self._started = self._validated = time.perf_counter()
        self._begun: float | None = None
        self._characters = 0

    def ask(self, inputs: str) -> None:
        """The request is read and checked, and is sent on now."""
        self._validated = time.perf_counter()
        self._characters = len(inputs)

    def begin(self) -> None:
        """The processor has said that it works, or its first record has arrived; only the first sign counts."""
        if self._begun is None:
            self._begun = max(self._validated, time.perf_counter() - ACCEPTED_AFTER_SECONDS)

    def start_headers(self) -> dict[str, str]:
        """The headers that are known before the first token."""
        return {"x-compute-type": COMPUTE_TYPE, "x-compute-characters": str(self._characters)}

    def end_headers(self, in_token: int | None, generated_tokens: int | None) -> dict[str, str]:
        """All headers, once the answer is whole: whole milliseconds, `x-compute-time` in seconds.

        Args:
            in_token: tokens of the prompt; None = unknown.
            generated_tokens: tokens of the answer; None = unknown.
        """
        now = time.perf_counter()
        begun = self._validated if self._begun is None else self._begun
        total, inference = now - self._started, now - begun
        headers = self.start_headers() | {
            "x-compute-time": f"{total:.6f}",
            "x-total-time": _milliseconds(total),
            "x-validation-time": _milliseconds(self._validated - self._started),
            "x-queue-time": _milliseconds(begun - self._validated),
            "x-inference-time": _milliseconds(inference),
        }
        if in_token is not None:
            headers["x-prompt-tokens"] = str(in_token)
        if generated_tokens is not None:
            headers["x-generated-tokens"] = str(generated_tokens)
        if generated_tokens:
            headers["x-time-per-token"] = _milliseconds(inference / generated_tokens)
        return headers


def _milliseconds(seconds: float) -> str:
    return str(math.floor(seconds * 1000))
