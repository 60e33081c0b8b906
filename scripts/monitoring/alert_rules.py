"""What an operator must hear of -> rules of Prometheus; each alert has a paragraph in deploy/RUNBOOK.md."""

from dataclasses import dataclass
from typing import Any, Final

from scripts.monitoring.promql import checked, equal, grown, level, quantile, total
from tg_schema import TgError
from tg_schema.errors import SlowConsumer

RUNBOOK: Final = "deploy/RUNBOOK.md"
OBJECTIVE: Final = 0.999
"""The share of requests that must not fail by our fault or a provider's."""
RATIO: Final = "tokengrid:request_errors:ratio_rate"
BURN_RATES: Final = (("page", 14.4, "1h", "5m"), ("ticket", 6.0, "6h", "30m"))
"""Severity, multiple of the budget's even use, long and short window: Google's SRE workbook, chapter 5."""


@dataclass(frozen=True)
class Alert:
    """An alert: it fires once its expression has had a result for `after`."""

    name: str
    expression: str
    after: str
    severity: str
    summary: str

    @property
    def rule(self) -> dict[str, Any]:
        """As Prometheus reads it."""
        runbook = f"{RUNBOOK}#{self.name.lower()}"
        return {
            "alert": self.name,
            "expr": checked(self.expression, frozenset(map(_ratio, WINDOWS))),
            "for": self.after,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook": runbook},
        }


def _ratio(window: str) -> str:
    return f"{RATIO}{window}"


def _faults(kind: type[TgError] = TgError) -> set[str]:
    """The types of errors that are no client's fault."""
    inner = set().union(*map(_faults, kind.__subclasses__()))
    return inner | ({kind.type} if kind.status >= 500 and kind is not SlowConsumer else set())


WINDOWS: Final = tuple(dict.fromkeys(window for _, _, *windows in BURN_RATES for window in windows))
FAULTS: Final = "|".join(sorted(_faults()))
_REQUESTS: Final = "tg_gateway_requests_total"
_REFUSED: Final = 'status!=""'
_OF_KINDS: Final = ("service", "model", "flow")
ALERTS: Final = (
    *(
        Alert(
            f"TokengridErrorBudget{'Fast' if severity == 'page' else 'Slow'}Burn",
            f"{_ratio(long)} > {rate * (1 - OBJECTIVE):g} and {_ratio(short)} > {rate * (1 - OBJECTIVE):g}",
            "2m",
            severity,
            f"Requests fail {rate:g} times as often as {OBJECTIVE:.1%} allow",
        )
        for severity, rate, long, short in BURN_RATES
    ),
    Alert(
        "TokengridQueueGrowing",
        f"{quantile(0.9, 'tg_queue_wait_seconds', *_OF_KINDS)} > 5",
        "5m",
        "ticket",
        "One in ten requests for {{ $labels.model }} waits over 5 s",
    ),
    Alert(
        "TokengridQueueFull",
        f"{total('tg_refusals_total', 'service', where=equal('reason', 'queue'))} > 0",
        "5m",
        "page",
        "Requests for {{ $labels.service }} are refused, since its queue is full",
    ),
    Alert(
        "TokengridNoProcessor",
        f"{total('tg_refusals_total', 'service', where=equal('reason', 'deserted'))} > 0",
        "1m",
        "page",
        "No live processor serves {{ $labels.service }}",
    ),
    Alert(
        "TokengridProcessorsDying",
        f"{grown('tg_attempts_total', 'service')} > 3",
        "1m",
        "page",
        "Processors of {{ $labels.service }} die, or are suspended or cut off",
    ),
    Alert(
        "TokengridDeadLetters",
        f"{grown('tg_poison_messages_total', 'topic')} > 0",
        "0m",
        "ticket",
        "Messages of {{ $labels.topic }} cannot be read, or silenced processors",
    ),
    Alert(
        "TokengridUsageLost",
        f"{grown('tg_usage_lost_total')} > 0",
        "0m",
        "ticket",
        "Records of usage are lost",
    ),
    Alert(
        "TokengridBrokerAway",
        # Only the first requests of an outage end so: then no processor is known, and they are not sent.
        f"{grown(_REQUESTS, where=equal('outcome', 'bus'))} > 0 or {grown('tg_reader_ends_total')} > 0",
        "1m",
        "page",
        "The broker refuses or loses messages, or subscriptions end",
    ),
    Alert(
        "TokengridTargetDown",
        'up{job=~".*tokengrid.*"} == 0',
        "1m",
        "page",
        "{{ $labels.instance }} of {{ $labels.job }} does not answer Prometheus",
    ),
    Alert(
        "TokengridProviderRefuses",
        f"{total('tg_provider_calls_total', 'model', where=_REFUSED)} / "
        f"{total('tg_provider_calls_total', 'model')} > 0.2",
        "5m",
        "page",
        "The provider of {{ $labels.model }} refuses more than a fifth of its calls",
    ),
    Alert(
        "TokengridGuessedTokens",
        f"{total('tg_gateway_auth_failures_total')} > 1",
        "5m",
        "ticket",
        "More than one wrong token a second",
    ),
    Alert(
        "TokengridPoolEmpty",
        f"{level('llm_d_epp_ready_endpoints', 'name', function='min')} == 0",
        "1m",
        "page",
        "No server of the pool {{ $labels.name }} can be reached",
    ),
    Alert(
        "TokengridObjectiveMissed",
        f"{total('tg_route_requests_within_objective_total', 'route', 'objective', over='30m')} / "
        f"{total('tg_route_requests_total', 'route', 'objective', over='30m')} < "
        f"{level('tg_route_objective_share', 'route', 'objective', function='max')}",
        "5m",
        "ticket",
        "The route {{ $labels.route }} keeps its {{ $labels.objective }} too seldom",
    ),
)


def make_rules() -> dict[str, Any]:
    """The file of rules."""
    failed = f'outcome=~"{FAULTS}"'
    recorded = [
        {
            "record": _ratio(window),
            "expr": checked(
                f"({total(_REQUESTS, where=failed, over=window)} or vector(0)) / "
                f"clamp_min({total(_REQUESTS, over=window)}, 1e-9)"
            ),
        }
        for window in WINDOWS
    ]
    return {
        "groups": [
            {"name": "tokengrid-errors", "rules": recorded},
            {"name": "tokengrid-alerts", "rules": [alert.rule for alert in ALERTS]},
        ]
    }
