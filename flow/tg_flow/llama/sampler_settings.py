"""Request and options -> SamplerSettings, with every default filled in and every value checked."""

import math
import secrets

import msgspec

from tg_schema import Sampling
from tg_schema.errors import BadRequest

MAX_SEED = 0xFFFFFFFF
"""llama.cpp uses 32 bits, and its highest value means a random seed."""


class SamplerSettings(msgspec.Struct, frozen=True):
    """`temperature` 0 = always the most likely token; `top_k` 0 = all tokens; `top_p` 1 = all probability."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @classmethod
    def of(cls, sampling: Sampling, *, temperature: float, top_k: int, top_p: float) -> "SamplerSettings":
        """The values of `sampling`, or else the given ones; without a seed, a random one.

        Raises:
            BadRequest: a value is out of range; the message names it.
        """
        seed = secrets.randbelow(MAX_SEED) if sampling.seed is None else sampling.seed % MAX_SEED
        return cls(
            temperature=_within("temperature", sampling.temperature, temperature, 0, 100),
            top_k=int(_within("top_k", sampling.top_k, top_k, 0, 2**31 - 1)),
            top_p=_within("top_p", sampling.top_p, top_p, 0, 1),
            seed=seed,
            presence_penalty=_within("presence_penalty", sampling.presence_penalty, 0.0, -2, 2),
            frequency_penalty=_within("frequency_penalty", sampling.frequency_penalty, 0.0, -2, 2),
        )


def _within(name: str, value: float | None, default: float, low: float, high: float) -> float:
    if value is None:
        return default
    if not math.isfinite(value) or not low <= value <= high:
        raise BadRequest(f"sampling.{name} must be a number from {low} to {high}")
    return value
