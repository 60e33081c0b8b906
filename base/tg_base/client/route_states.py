"""A route's plan -> the states of its models: why each of them is asked now, or not."""

from typing import Any

from tg_base.client.admission import AdmissionControl
from tg_base.client.model_health import ModelHealth
from tg_base.protocol import Route, RoutePlan
from tg_schema.served_model import RoutedModel


def explain_plan(plan: RoutePlan, health: ModelHealth, admission: AdmissionControl) -> tuple[RoutedModel, ...]:
    """The models in the order of the configuration, as this process sees them."""
    first = admission.find(plan.queues[0].request).features

    def explain(queue: Route[Any, Any]) -> RoutedModel:
        announced, model = admission.find(queue.request), queue.model or ""
        if not announced.served:
            return RoutedModel(model, queue.flow, "absent")
        lacks, reason = tuple(sorted(first - announced.features)), health.explain(queue.request)
        if not reason:
            return RoutedModel(model, queue.flow, "ready", lacks=lacks)
        seconds = round(health.wait(queue.request), 3)
        return RoutedModel(model, queue.flow, "cooling" if seconds else "trying", reason, seconds, lacks)

    return tuple(explain(queue) for queue in plan.queues)
