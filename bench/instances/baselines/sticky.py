"""Scheduling context -> server: sticky until saturated, the default of llm-d's guides since July 2026 (5.6)."""

from bench.instances.baselines.scoring import best_of, cached_tokens, cap_prefix
from tg_picker.core import Choice, SchedulingContext

AFFINITY_THRESHOLD = 0.80
"""Share of a prompt's tokens that a server must have cached for the prompt to stick to it."""
PEAK_PREFILL_TOKENS_PER_SECOND = 15_928.0
MAX_FIRST_TOKEN_PENALTY_SECONDS = 18.0
"""Seconds of prefill by which the least loaded warm server may be behind the least loaded cold one."""
MAX_SCORED_TOKENS = 4_194_304
"""Tokens in flight at which a server's score is 0."""


class StickyUntilSaturated:
    """Servers that have the prompt's beginning, unless they are far behind; of these the one with least to prefill.

    Reads no metric: tokens in flight are our own count, released at the first token. Adapters are not considered.
    """

    def choose(self, context: SchedulingContext) -> Choice:
        """Choose by prompts in flight and by the prompts that the servers were given."""
        servers, request = list(context.servers), context.request
        prefix, tokens = cap_prefix(request.prefix), max(request.prompt_tokens, 1)
        matches = [min(cached_tokens(prefix, server) / tokens, 1.0) for server in servers]
        loads = [server.uncached_tokens for server in servers]
        warm = [index for index, match in enumerate(matches) if match >= AFFINITY_THRESHOLD]
        kept, reason = list(range(len(servers))), "cold"
        if warm:
            cold = [load for load, match in zip(loads, matches, strict=True) if match < AFFINITY_THRESHOLD]
            behind = min(loads[index] for index in warm) - min(cold, default=0) if cold else 0
            kept, reason = warm, "sticky"
            if behind / PEAK_PREFILL_TOKENS_PER_SECOND > MAX_FIRST_TOKEN_PENALTY_SECONDS:
                kept, reason = list(range(len(servers))), "saturated"
        scores = [1 - min(1.0, (loads[index] + tokens * (1 - matches[index])) / MAX_SCORED_TOKENS) for index in kept]
        best = best_of([servers[index] for index in kept], scores, context.random)
        return Choice(best, (reason, f"score {max(scores):.5f}"))
