"""Server states -> scores from 0 to 1: what several published policies have in common."""

from collections.abc import Sequence
from random import Random

from tg_picker.core import ServerState
from tg_picker.core.interface import BLOCK_TOKENS, Fingerprint

MAX_MATCHED_BLOCKS = 131_072 // BLOCK_TOKENS
"""As much of a prompt the reference matches (llm-d-router v0.10; its forerunner matched 4,096 tokens)."""


def queue_scores(servers: Sequence[ServerState]) -> list[float]:
    """1 for the shortest queue, 0 for the longest, 1 for all if they are equal."""
    queues = [server.queued for server in servers]
    longest, shortest = max(queues), min(queues)
    if longest == shortest:
        return [1.0] * len(queues)
    return [(longest - queue) / (longest - shortest) for queue in queues]


def prefix_scores(prefix: Fingerprint, servers: Sequence[ServerState]) -> list[float]:
    """The share of the prompt's whole blocks that are probably cached."""
    capped = cap_prefix(prefix)
    total = len(capped.blocks)
    if not total:
        return [0.0] * len(servers)
    return [server.prefixes.match(capped) / total for server in servers]


def cap_prefix(prefix: Fingerprint) -> Fingerprint:
    """The part of a prompt that is matched."""
    return prefix if len(prefix.blocks) <= MAX_MATCHED_BLOCKS else Fingerprint(prefix.blocks[:MAX_MATCHED_BLOCKS])


def cached_tokens(prefix: Fingerprint, server: ServerState) -> int:
    """Tokens of the prompt that are probably cached."""
    return server.prefixes.match(prefix) * BLOCK_TOKENS


def best_of(servers: Sequence[ServerState], scores: Sequence[float], random: Random) -> ServerState:
    """The server with the highest score, ties by chance."""
    highest = max(scores)
    return random.choice([server for server, score in zip(servers, scores, strict=True) if score == highest])
