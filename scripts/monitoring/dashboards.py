"""What an operator looks at -> dashboards of Grafana, whose panels name only metrics and labels that there are."""

from dataclasses import dataclass
from typing import Any, Final

from scripts.monitoring.alert_rules import FAULTS
from scripts.monitoring.promql import checked, level, quantile, total

_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """A graph: its title, the unit, and expressions with what names their series."""

    title: str
    unit: str
    series: tuple[tuple[str, str], ...]

    def draw(self, place: int) -> dict[str, Any]:
        """As Grafana reads it; panels are placed row by row."""
        x, y = place % _COLUMNS * _WIDTH, place // _COLUMNS * _HEIGHT
        return {
            "id": place + 1,
            "type": "timeseries",
            "title": self.title,
            "datasource": _SOURCE,
            "gridPos": {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT},
            "fieldConfig": {"defaults": {"unit": self.unit, "min": 0}, "overrides": []},
            "targets": [
                {"refId": chr(ord("A") + number), "expr": checked(expression), "legendFormat": legend}
                for number, (expression, legend) in enumerate(self.series)
            ],
        }


@dataclass(frozen=True)
class Dashboard:
    """Panels; `choice` is a label of which values are chosen, as `name` of a metric has them."""

    title: str
    panels: tuple[Panel, ...]
    choice: tuple[str, str] | None = None

    def draw(self) -> dict[str, Any]:
        """As Grafana imports it."""
        source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
        variables: list[dict[str, Any]] = [source]
        if self.choice is not None:
            label, metric = self.choice
            query = f"label_values({metric}, {label})"
            chosen = {"includeAll": True, "multi": True, "allValue": ".*", "refresh": 2}
            variables.append({"name": label, "type": "query", "datasource": _SOURCE, "query": query, **chosen})
        return {
            "uid": f"tokengrid-{self.title.lower()}",
            "title": f"Tokengrid: {self.title}",
            "tags": ["tokengrid"],
            "schemaVersion": 39,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "templating": {"list": variables},
            "panels": [panel.draw(place) for place, panel in enumerate(self.panels)],
        }


def _by(title: str, name: str, *by: str, unit: str = "reqps", where: str = "") -> Panel:
    return Panel(title, unit, ((total(name, *by, where=where), _legend(by)),))


def _now(title: str, name: str, *by: str, unit: str = "short", function: str = "sum") -> Panel:
    return Panel(title, unit, ((level(name, *by, function=function), _legend(by)),))


def _quantiles(title: str, name: str, *by: str, where: str = "") -> Panel:
    shares = ((0.5, "p50"), (0.99, "p99"))
    return Panel(
        title, "s", tuple((quantile(share, name, *by, where=where), f"{word} {_legend(by)}") for share, word in shares)
    )


def _legend(by: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in by)


_REQUESTS: Final = "tg_gateway_requests_total"
_PLACE: Final = ("model", "flow")
_OF_MODEL: Final = 'model=~"$model"'
_OF_KEY: Final = 'key=~"$key"'
_FAILED: Final = f'outcome=~"{FAULTS}"'
DASHBOARDS: Final = (
    Dashboard(
        "Overview",
        (
            _by("Requests", _REQUESTS, "service", "outcome"),
            Panel(
                "Share that failed", "percentunit", ((f"{total(_REQUESTS, where=_FAILED)} / {total(_REQUESTS)}", ""),)
            ),
            _now("Streams", "tg_gateway_streams"),
            _quantiles("First token", "tg_first_token_seconds", "service"),
            _quantiles("Whole answer", "tg_request_seconds", "service"),
            _quantiles("Wait in the queue", "tg_queue_wait_seconds", "service"),
            _by("Tokens", "tg_tokens_total", "direction", unit="short"),
            _by("Refusals", "tg_refusals_total", "service", "reason"),
            _quantiles("A chunk's time in the gateway", "tg_overhead_seconds", "service"),
            _now("Sockets", "tg_gateway_sockets"),
            _by("Wrong tokens", "tg_gateway_auth_failures_total"),
            _by("Malformed connections", "tg_gateway_malformed_total"),
        ),
    ),
    Dashboard(
        "Model",
        (
            _quantiles("First token", "tg_first_token_seconds", *_PLACE, where=_OF_MODEL),
            _quantiles("Between two chunks", "tg_chunk_gap_seconds", *_PLACE, where=_OF_MODEL),
            _quantiles("Whole answer", "tg_request_seconds", *_PLACE, where=_OF_MODEL),
            _quantiles("Wait in the queue", "tg_queue_wait_seconds", *_PLACE, where=_OF_MODEL),
            _by("Whole answers", "tg_request_seconds_count", *_PLACE, where=_OF_MODEL),
            _by("Tokens", "tg_tokens_total", "model", "direction", unit="short", where=_OF_MODEL),
            _by("Calls of the provider", "tg_provider_calls_total", "model", "outcome", where=_OF_MODEL),
            _by(
                "Refusals of the provider",
                "tg_provider_calls_total",
                "model",
                "status",
                where=f'{_OF_MODEL}, status!=""',
            ),
            _now("Requests at work", "tg_active_streams", "service"),
        ),
        ("model", "tg_tokens_total"),
    ),
    Dashboard(
        "Key",
        (
            _by("Requests", "tg_key_requests_total", "key", where=_OF_KEY),
            _by("Failures", "tg_key_requests_total", "key", "outcome", where=f'{_OF_KEY}, outcome!="ok"'),
            _by("Tokens in", "tg_key_tokens_total", "key", unit="short", where=f'{_OF_KEY}, direction="in"'),
            _by("Tokens out", "tg_key_tokens_total", "key", unit="short", where=f'{_OF_KEY}, direction="out"'),
            Panel(
                "Most tokens", "short", ((f"topk(10, {total('tg_key_tokens_total', 'key', over='1h')})", "{{key}}"),)
            ),
            _by("Refusals", "tg_refusals_total", "service", "reason"),
        ),
        ("key", "tg_key_requests_total"),
    ),
    Dashboard(
        "Bus",
        (
            _by("Further attempts", "tg_attempts_total", "service"),
            _by("Gaps asked for again", "tg_resends_total"),
            _by("Subscriptions that ended", "tg_reader_ends_total"),
            _by("Unreadable messages", "tg_poison_messages_total", "topic"),
            _by("Requests that wait on the bus", "tg_band_total", "service", "event"),
            _now("Of those, asked for now", "tg_band_made", "service"),
            _by("Requests past the queue", "tg_warm_requests_total", "service", "event"),
            _by("Requests ended at processors", "tg_streams_total", "service", "outcome"),
            _now("The broker's backlog", "pulsar_subscription_back_log", "subscription"),
            _now("Tasks", "tg_tasks", "instance", function="max"),
            _now("Open files", "process_open_fds", "instance", function="max"),
            _now("Memory", "process_resident_memory_bytes", "instance", unit="bytes", function="max"),
        ),
    ),
    Dashboard(
        "Pools",
        (
            _now("Servers that can be reached", "llm_d_epp_ready_endpoints", "name", function="min"),
            _now("How full", "llm_d_epp_flow_control_pool_saturation", "inference_pool", function="max"),
            _now("Requests that wait for a place", "llm_d_epp_flow_control_queue_size", "inference_pool", "priority"),
            _now("Placed at a server", "tg_pool_requests", "pool", "server"),
            _now("Waiting at a server", "llm_d_epp_per_endpoint_queue_size", "name", "model_server_endpoint"),
            _now(
                "KV cache in use", "llm_d_epp_average_kv_cache_utilization", "name", unit="percentunit", function="max"
            ),
            _quantiles("First token", "llm_d_epp_request_ttft_seconds", "model_name"),
            _quantiles("Whole answer", "llm_d_epp_request_duration_seconds", "model_name"),
            _by("Failures", "llm_d_epp_request_error_total", "model_name", "error_code"),
            _by("Picks", "llm_d_epp_scheduler_attempts_total", "status", "endpoint_name"),
            _by("Picks for an adapter", "tg_pool_adapter_picks_total", "pool", "adapter", "result"),
            _now(
                "Objectives kept", "tg_route_attainment_ratio", "route", "objective", unit="percentunit", function="min"
            ),
        ),
    ),
)
