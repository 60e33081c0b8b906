"""An answer's service -> a header with its load in ORCA's format, if the request asked for it.

https://github.com/envoyproxy/envoy/issues/6614; the names of the metrics are vLLM's.
"""

import json
from typing import Any

from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.telemetry import LOAD_RESPONSE_HEADER, MODEL_LOADS


def make_load_headers(requestor: Requestor, form: str | None, route: Route[Any, Any]) -> dict[str, str]:
    """The header, from this process's view of a queue's processors; empty without a request in a known format.

    Args:
        requestor: knows the processors.
        form: the request's `LOAD_REQUEST_HEADER`: `text` or `json`.
        route: the service that answers; for a route, its first model with a processor is described.
    """
    wanted = (form or "").strip().upper()
    if wanted not in {"TEXT", "JSON"}:
        return {}
    metrics = _measure(requestor, route)
    if wanted == "JSON":
        return {LOAD_RESPONSE_HEADER: f"JSON {json.dumps({'named_metrics': metrics})}"}
    text = ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())
    return {LOAD_RESPONSE_HEADER: f"TEXT {text}"}


def _measure(requestor: Requestor, route: Route[Any, Any]) -> dict[str, float]:
    queue = requestor.routes.find_live(route).request
    serving = requestor.presence.serving(queue)
    models = dict.fromkeys(model for presence in serving for model in presence.models)
    here = [load for load in map(MODEL_LOADS.look, models) if load is not None]
    if here:
        # Our own count is current; announcements are up to a second old.
        usage = sum(load.cached for load in here) / max(1, sum(load.cache for load in here))
        return {
            "kv_cache_usage_perc": round(min(1.0, usage), 6),
            "num_requests_waiting": sum(load.waiting for load in here),
            "num_requests_running": sum(load.running for load in here),
        }
    running = sum(presence.in_flight for presence in serving)
    waiting = max(0, requestor.admission.unanswered[queue] - running)
    return {"num_requests_waiting": waiting, "num_requests_running": running}
