"""Context -> server: the least predicted wait for a first token, by our own count of each server's pending work.

Scraped metrics are up to an interval old, and many requests are placed between two scrapes. So this policy counts its
own placements, and uses reports only for what it cannot know: slots, the cache's size, the requests of others.
"""

from collections.abc import Sequence
from math import ceil, exp
from operator import attrgetter, itemgetter

from tg_picker.core.interface import BLOCK_TOKENS, InstanceRequest
from tg_picker.core.policies.admission import MAX_USED_SHARE
from tg_picker.core.policies.policy import Choice, Refusal, SchedulingContext
from tg_picker.core.state import FADE_SECONDS, LOAD_SECONDS, MAX_FALLBACKS, ServerState

OTHERS_WEIGHT = 0.1
"""Weight of a second that other requests probably lose, relative to a second of this request's own wait."""
KV_POWER = 4.0
KV_WEIGHT = 8.0
"""Cost of occupying KV cache, for each second of occupation, growing with the fullness of the cache."""
KV_BALANCE_WEIGHT = 3.0
"""Cost of KV cache while it is far from full: later prompts with the same prefix will follow it to its server."""
DRAIN_SECONDS = 2.0
"""Cost of a missing adapter slot, for each adapter that waits for one, in addition to the predicted wait."""
DRAIN_WEIGHT = 0.3
"""Weight of a second of the predicted wait for a slot."""
SMALL_POOL_SERVERS = 16
"""Up to this many servers, every server is considered."""
MAX_CANDIDATES = 4
"""Most servers considered for each reason to choose one: it has the adapter, it has the prompt's prefix, or its load
is low."""

_load_of = attrgetter("load")
_RANK = itemgetter(0, 1)


class PredictedWait:
    """Picks the server with the least predicted wait, plus what the request costs the other requests there."""

    def choose(self, context: SchedulingContext) -> Choice | Refusal:
        """Choose among the servers that have the adapter or the prompt's beginning, and the least loaded ones."""
        request, random = context.request, context.random
        servers = context.servers
        if request.priority < 0:
            servers = [each for each in servers if _has_spare_room(each)]
            if not servers:
                return Refusal("objective-out-of-reach")
        candidates = _candidates(servers, request)
        draw = random.random
        ranked = []
        for server in candidates:
            cost, wait, matched = predict_cost(server, context)
            ranked.append((cost, draw(), wait, matched, server))
        ranked.sort(key=_RANK)
        cost, _, wait, matched, chosen = ranked[0]
        if request.priority < 0:
            # Do not refuse because an idle server is slow: then the request would never be admitted.
            uncached = max(request.prompt_tokens - BLOCK_TOKENS * matched, 1)
            if not chosen.speed.is_soon(wait, uncached, request.objective):
                return Refusal("objective-out-of-reach")
        others = [each[4] for each in ranked[: MAX_FALLBACKS + 1]]
        reasons = _reasons(chosen, request.adapter, matched, cost)
        return Choice(chosen, reasons, others, matched)


def _has_spare_room(server: ServerState) -> bool:
    """Whether a sheddable request may go to a server: no other request should have to wait for it to end."""
    is_busy = server.kv_usage > MAX_USED_SHARE or server.requests >= MAX_USED_SHARE * server.concurrency_limit
    # A single request in its queue may have arrived since its last step.
    return server.queue <= 1 and not is_busy


def _candidates(servers: Sequence[ServerState], request: InstanceRequest) -> Sequence[ServerState]:
    if len(servers) <= SMALL_POOL_SERVERS:
        return servers
    by_load = sorted(servers, key=_load_of)
    found = by_load[:MAX_CANDIDATES]
    adapter, blocks = request.adapter, request.prefix.blocks
    if adapter is not None:
        found += [server for server in by_load if adapter in server.adapters.used_at][:MAX_CANDIDATES]
        found += [server for server in by_load if server.has_spare_slot][:MAX_CANDIDATES]
    if blocks:
        first = blocks[0]
        found += [server for server in by_load if server.prefixes.knows(first)][:MAX_CANDIDATES]
    return list(dict.fromkeys(found))


def predict_cost(server: ServerState, context: SchedulingContext) -> tuple[float, float, int]:
    """The cost, the predicted seconds until the first token, and how many of the prompt's blocks are cached.

    The cost includes what other requests lose.

    Args:
        server: the server to consider.
        context: the request and the servers.
    """
    request, speed, beside = context.request, server.speed, server.requests
    matched = server.prefixes.match(request.prefix)
    own = max(request.prompt_tokens - BLOCK_TOKENS * matched, 1)
    seconds, fixed = speed.prompt_token_seconds, speed.fixed_seconds
    work = seconds * own
    # Prompts that wait there share one step of the engine, and this request's prompt takes the next step.
    wait = (2 * fixed if server.unstarted else fixed) + seconds * server.uncached_tokens
    adapter, capacity = request.adapter, server.cache_tokens
    pace = speed.predict_pace(beside)
    # Other answers there stand still while this prompt is computed, and each token of this answer slows them down.
    # Prompts that wait share a step, unless they wait for an answer to end.
    step = fixed / 2 if server.unstarted and beside < server.concurrency_limit else fixed
    lost = beside * (work + step) + context.expected_tokens * (pace + speed.crowd_seconds * beside)
    residence = context.expected_tokens * pace
    extra = 0.0
    if adapter is not None:
        if adapter not in server.adapter_requests:
            extra = _slot_cost(server, context, residence)
        if adapter not in server.adapters.used_at:
            wait += LOAD_SECONDS
            lost += beside * LOAD_SECONDS * speed.engine.standstill
    if beside >= server.seats:
        # As many answers as wait there, and one more, must end first. A stall may have shown too few seats, so this
        # term fades, sooner if the seats are few. Then one request goes beyond the seats, and confirms or refutes them.
        faded = exp(min(server.seats_shown_at - context.now, 0.0) / (FADE_SECONDS * server.seats))
        wait += faded * residence * (beside + 1 - server.seats) / server.seats
    if server.ready_at:
        wait += _loading_seconds(server, adapter, context.now)
    if capacity:
        shared, users = server.active.shared_blocks(request.prefix, matched)
        shared *= BLOCK_TOKENS
        used = server.used_tokens
        excess = used + max(request.prompt_tokens - shared, 0) - capacity
        if excess > 0:
            wait += _room_seconds(server, excess / used if used else 1.0, residence)
        fullness = used / capacity
        price = KV_BALANCE_WEIGHT * fullness + KV_WEIGHT * fullness**KV_POWER
        # Cached idle blocks occupy room as well once they are in use. Blocks shared with other requests stay longer
        # only if this request ends last.
        taken = request.prompt_tokens - shared + shared / (users + 1)
        extra += price * residence * taken / capacity
    return wait + work + extra + OTHERS_WEIGHT * lost, wait + work, matched


def _room_seconds(server: ServerState, share: float, residence: float) -> float:
    """Seconds until this share of the used cache is free.

    Assume that all requests occupy equal parts, and that a part is freed only when its request ends.
    """
    running = max(server.requests, 1)
    return residence * ceil(share * running) / running


def _loading_seconds(server: ServerState, adapter: str | None, now: float) -> float:
    """Seconds by which adapter loads delay this request: those before its own load, or the standstill that they cause.

    A load that waits for a slot delays only requests for its own adapter.
    """
    ready_at = server.ready_at.get(adapter or "")
    if ready_at is None:
        seconds = max(server.loads_end_at - now, 0.0)
        is_loaded = adapter is None or adapter in server.adapters.used_at
        return seconds * server.speed.engine.standstill if is_loaded else seconds
    slots = server.adapters.slots
    if now > ready_at and slots and len(server.adapter_requests) > slots:
        # Requests for the adapters in the slots keep coming, so expect to wait for about as long again.
        return now - ready_at
    return max(ready_at - now, 0.0)


def _slot_cost(server: ServerState, context: SchedulingContext, residence: float) -> float:
    """The cost of using one more slot, and of unloading the adapter that may be in it."""
    slots = server.adapters.slots
    if not slots:
        return 0.0
    busy = len(server.adapter_requests)
    if busy >= slots:
        return DRAIN_SECONDS * (busy - slots + 1) + DRAIN_WEIGHT * server.drain_seconds(residence)
    lost = residence * (busy + 1) / slots
    loaded = server.adapters.used_at
    if context.request.adapter not in loaded and len(loaded) >= slots:
        lost += LOAD_SECONDS  # the unloaded idle adapter must be loaded again when it is requested
    return OTHERS_WEIGHT * lost


def _reasons(server: ServerState, adapter: str | None, matched: int, cost: float) -> tuple[str, ...]:
    reasons = [f"cost {cost:.3f} s"]
    if adapter is not None:
        reasons.append("adapter loaded" if adapter in server.adapters.used_at else "adapter to load")
    if matched:
        reasons.append(f"cached blocks {matched}")
    return tuple(reasons)
