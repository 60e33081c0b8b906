"""Request and options -> SamplerSettings: all defaults filled in, all values checked."""

import math
import secrets

import msgspec

from tg_base.runtime import Steps
from tg_llama.core.logit_bias import LogitBias
from tg_schema import Sampling
from tg_schema.errors import BadRequest

MAX_SEED = 0xFFFFFFFF
"""llama.cpp uses 32 bits, and its highest value means a random seed."""


class SamplerSettings(msgspec.Struct, frozen=True):
    """Values without an effect: `top_k` 0, `top_p` and `typical_p` 1, `min_p` 0, `repetition_penalty` 1, penalties 0.

    If `temperature` is 0, the most likely token is always chosen.
    """

    temperature: float
    top_k: int
    top_p: float
    seed: int
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    logit_bias: LogitBias | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always chosen; then no seed is used."""
        return self.temperature == 0 or self.top_p == 0 or self.top_k == 1

    def numbered(self, index: int) -> "SamplerSettings":
        """The settings of one of several answers. Its seed is the first answer's seed plus `index`."""
        return msgspec.structs.replace(self, seed=(self.seed + index) % MAX_SEED)

    @classmethod
    def of(cls, sampling: Sampling, *, temperature: float, top_k: int, top_p: float) -> Steps["SamplerSettings"]:
        """The values of `sampling`, or else the given defaults; without a seed, a random one.

        Raises:
            BadRequest: a value is out of range; the message names it.
        """
        logit_bias = yield from _read_bias(sampling)
        seed = secrets.randbelow(MAX_SEED) if sampling.seed is None else sampling.seed % MAX_SEED
        return cls(
            temperature=_within("temperature", sampling.temperature, temperature, 0, 100),
            # vLLM's clients say -1 for all tokens.
            top_k=max(0, int(_within("top_k", sampling.top_k, top_k, -1, 2**31 - 1))),
            top_p=_within("top_p", sampling.top_p, top_p, 0, 1),
            seed=seed,
            presence_penalty=_within("presence_penalty", sampling.presence_penalty, 0.0, -2, 2),
            frequency_penalty=_within("frequency_penalty", sampling.frequency_penalty, 0.0, -2, 2),
            min_p=_within("min_p", sampling.min_p, 0.0, 0, 1),
            typical_p=_within("typical_p", sampling.typical_p, 1.0, 0, 1),
            repetition_penalty=_within("repetition_penalty", sampling.repetition_penalty, 1.0, 0.01, 100),
            logit_bias=logit_bias,
        )


def _read_bias(sampling: Sampling) -> Steps[LogitBias | None]:
    if sampling.packed_floats is not None:
        return (yield from LogitBias.unpack_floats(sampling.packed_floats))
    if sampling.packed_bias is not None:
        return (yield from LogitBias.unpack(sampling.packed_bias))
    return LogitBias.of(sampling.logit_bias) if sampling.logit_bias else None


def _within(name: str, value: float | None, default: float, low: float, high: float) -> float:
    if value is None:
        return default
    if not math.isfinite(value) or not low <= value <= high:
        raise BadRequest(f"sampling.{name} must be a number from {low} to {high}")
    return value
