"""Pickers of a process -> its pages and metrics: all boards, and their common counts."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from itertools import chain
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from tg_picker.pools import metrics
from tg_picker.status.picker_totals import PickerTotals
from tg_picker.status.pool_board import PoolBoard, read_recent
from tg_picker.status.pool_gauges import find_pools, pool_gauges, queue_gauges, server_gauges

_BUILD: Final = f"tokengrid-{version('tokengrid-base')}"


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
"""Older names of metrics, by the part of the new name after `llm_d_epp_`.

Names and labels are those of llm-d-router (`llm_d_epp_*`, as of ebab6879) and of the Gateway API Inference
Extension (`inference_*`), where ours mean the same.
"""
OLDER_LABELS: Final[Mapping[str, str]] = {"endpoint_name": "pod_name", "model_server_endpoint": "model_server_pod"}


class PoolBoards(Collector):
    """The boards that are shown. Metrics appear with the first board, so a process without pools has none.

    Args:
        registry: the registry that exports the metrics.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._registry = registry
        self._is_registered = False
        self._shown: list[PoolBoard] = []
        self._totals = PickerTotals(lambda name: any(board.names(name) for board in self._shown))

    @property
    def shown(self) -> tuple[PoolBoard, ...]:
        """The boards that are currently shown, the oldest first."""
        return tuple(self._shown)

    @property
    def totals(self) -> PickerTotals:
        """The counts so far."""
        self._totals.settle()
        return self._totals

    @contextmanager
    def show(self, board: PoolBoard) -> Iterator[None]:
        """Show a board until the block is left."""
        if not self._is_registered:
            self._is_registered = True
            self._registry.register(self)
        self._shown.append(board)
        try:
            yield
        finally:
            # Settle now, while the operator's names are still known.
            self._totals.settle()
            self._shown.remove(board)

    @override
    def collect(self) -> Iterable[Metric]:
        yield from add_older(chain(self.totals.registry.collect(), self._routes(), self._boards_now()))

    def _boards_now(self) -> Iterator[Metric]:
        # An installed package does not know the commit from which it was built.
        builds = [(("", _BUILD), 1.0)] if self.shown else []
        yield metrics.INFO.family(builds)
        pools = find_pools(self.shown)
        yield from pool_gauges(pools)
        yield from server_gauges(pools)
        yield from queue_gauges(self.shown)

    def _routes(self) -> Iterator[Metric]:
        routes = self._totals.routes.items()
        cases = (case for board in self.shown for case in board.pools.view.catalogue.cases.values())
        names = dict.fromkeys((*(case.route for case in cases), *self._totals.answers))
        answered = [((name, ""), self._totals.answers[name]) for name in names]
        answered += [(key, count.total) for key, (_, count) in routes]
        yield metrics.ANSWERS.family(answered)
        yield metrics.KEPT.family((key, count.kept) for key, (_, count) in routes)
        recent = read_recent(self.shown).items()
        yield metrics.ATTAINED.family((key, attained.share) for key, attained in recent)
        yield metrics.PROMISED.family((key, slo.share) for key, (slo, _) in routes)


def add_older(families: Iterable[Metric]) -> Iterator[Metric]:
    """Each family without its `_created` samples, and again under its older name if it has one."""
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


BOARDS: Final = PoolBoards()
"""The boards of this process."""
