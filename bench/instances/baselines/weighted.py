"""Scheduling context -> server: the weighted scorers of the reference implementation from v1 on (5.3)."""

from bench.instances.baselines.scoring import best_of, prefix_scores, queue_scores
from tg_picker.core import Choice, SchedulingContext, ServerState

QUEUE_WEIGHT = 2.0
KV_WEIGHT = 2.0
PREFIX_WEIGHT = 3.0
LORA_WEIGHT = 1.0
ACTIVE_SCORE, FREE_SLOT_SCORE, WAITING_SCORE, FULL_SCORE = 1.0, 0.8, 0.6, 0.0


class Weighted:
    """The highest sum of scores for queue, KV cache and prefix; the default profile does not look at adapters.

    Args:
        lora_weight: of the score for adapters; 0 = they are not looked at.
    """

    def __init__(self, lora_weight: float = 0.0) -> None:
        self._lora_weight = lora_weight

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by what the servers tell, and by the prompts that they were given."""
        servers, request = context.servers, context.request
        queues, prefixes = queue_scores(servers), prefix_scores(request.prefix, servers)
        scores = [
            QUEUE_WEIGHT * queue + KV_WEIGHT * (1 - server.kv_usage) + PREFIX_WEIGHT * prefix
            for server, queue, prefix in zip(servers, queues, prefixes, strict=True)
        ]
        if self._lora_weight:
            # The reference scores requests for the base model too, as if it were an adapter that nobody has.
            lora = [_lora_score(server, request.adapter) for server in servers]
            scores = [score + self._lora_weight * extra for score, extra in zip(scores, lora, strict=True)]
        best = best_of(servers, scores, context.random)
        return Choice(best, (f"score {max(scores):.3f}",))


def weighted_with_lora() -> Weighted:
    """With the scorer for adapters at the weight that it has when listed without one."""
    return Weighted(LORA_WEIGHT)


def _lora_score(server: ServerState, adapter: str | None) -> float:
    adapters = None if server.report is None else server.report.adapters
    if adapters is None:
        return ACTIVE_SCORE if adapter in server.adapter_requests else FREE_SLOT_SCORE
    if adapter in adapters.active:
        return ACTIVE_SCORE
    # As the reference does: an adapter that is told as active and as waiting counts twice.
    if adapters.slots is None or len(adapters.active) + len(adapters.waiting) < adapters.slots:
        return FREE_SLOT_SCORE
    return WAITING_SCORE if adapter in adapters.waiting else FULL_SCORE
