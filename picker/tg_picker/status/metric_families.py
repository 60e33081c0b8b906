"""Families of Prometheus -> page of metrics: each under its published name, and under its older one.

The names and labels are those of llm-d-router (`llm_d_epp_*`, as of ebab6879) and of the Gateway API Inference
Extension (`inference_*`), where ours mean the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric

from tg_picker.pools import metrics

OLDER: Final[Mapping[str, str]] = {
    "request": "inference_objective_request",
    "request_error": "inference_objective_request_error",
    "request_slo_violation": "inference_objective_request_slo_violation",
    "request_running": "inference_objective_running_requests",
    "request_size_bytes": "inference_objective_request_sizes",
    "request_ttft_seconds": "inference_objective_request_ttft_seconds",
    "request_streaming_tpot_seconds": "inference_objective_request_tpot_seconds",
    "request_duration_seconds": "inference_objective_request_duration_seconds",
    "request_ntpot_seconds": "inference_objective_normalized_time_per_output_token_seconds",
    "request_input_tokens": "inference_objective_input_tokens",
    "request_output_tokens": "inference_objective_output_tokens",
    "request_cached_tokens": "inference_objective_prompt_cached_tokens",
    "ready_endpoints": "inference_pool_ready_pods",
    "average_queue_size": "inference_pool_average_queue_size",
    "average_running_requests": "inference_pool_average_running_requests",
    "average_kv_cache_utilization": "inference_pool_average_kv_cache_utilization",
    "per_endpoint_queue_size": "inference_pool_per_pod_queue_size",
    "info": "inference_extension_info",
    "model_rewrite_decisions": "inference_extension_model_rewrite_decisions",
    "scheduler_attempts": "inference_extension_scheduler_attempts",
    "scheduler_e2e_duration_seconds": "inference_extension_scheduler_e2e_duration_seconds",
    "prefix_indexer_size": "inference_extension_prefix_indexer_size",
    "prefix_indexer_hit_ratio": "inference_extension_prefix_indexer_hit_ratio",
    "prefix_indexer_hit_bytes": "inference_extension_prefix_indexer_hit_bytes",
    "flow_control_pool_saturation": "inference_extension_flow_control_pool_saturation",
    "flow_control_queue_size": "inference_extension_flow_control_queue_size",
    "flow_control_queue_bytes": "inference_extension_flow_control_queue_bytes",
    "flow_control_request_queue_duration_seconds": ("inference_extension_flow_control_request_queue_duration_seconds"),
}
"""The older name of each, by what follows `llm_d_epp_` in the new one."""
OLDER_LABELS: Final[Mapping[str, str]] = {"endpoint_name": "pod_name", "model_server_endpoint": "model_server_pod"}


def add_older(families: Iterable[Metric]) -> Iterator[Metric]:
    """Each family, without the times at which its series began, and once more under its older name if it has one."""
    for family in families:
        family.samples = [each for each in family.samples if not each.name.endswith("_created")]
        yield family
        older = OLDER.get(family.name.removeprefix(metrics.NEW))
        if older is not None:
            yield _rename(family, older)


def _rename(family: Metric, name: str) -> Metric:
    renamed = Metric(name, family.documentation, family.type)
    for each in family.samples:
        labels = {OLDER_LABELS.get(label, label): value for label, value in each.labels.items()}
        renamed.samples.append(each._replace(name=name + each.name.removeprefix(family.name), labels=labels))
    return renamed
