"""Logits -> natural-log probabilities of a token and of the likeliest ones."""

import ctypes

import numpy as np

from tg_llama.sampling.logit_bias import LogitBias


def logprobs(
    row: ctypes.Array[ctypes.c_float], token: int, alternatives: int, bias: LogitBias | None = None
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """Log-softmax of the model's own logits and `bias`, before temperature, penalties and grammar.

    Returns:
        That of `token`, and the `alternatives` likeliest tokens with theirs, best first; plain Python numbers.
    """
    logits = np.ctypeslib.as_array(row).astype(np.float64)
    if bias is not None:
        bias.add_to(logits)
    # Subtracted first, so that no exponential overflows.
    highest = logits.max()
    logits -= highest + np.log(np.exp(logits - highest).sum())
    if not alternatives:
        return float(logits[token]), ()
    count = min(alternatives, len(logits))
    best = np.argpartition(logits, -count)[-count:]
    best = best[np.argsort(-logits[best], kind="stable")]
    return float(logits[token]), tuple((int(number), float(logits[number])) for number in best)
