"""deploy/: dashboards and rules name only metrics and labels that there are, and each alert fires on its fault."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.monitoring.__main__ import FOLDER, make_files
from scripts.monitoring.alert_rules import ALERTS, RATIO, WINDOWS
from scripts.monitoring.dashboards import DASHBOARDS
from scripts.monitoring.promql import KNOWN, find_faults

FILES = make_files()
RULES = yaml.safe_load(FILES["prometheus/rules.yaml"])
RECORDED = frozenset(f"{RATIO}{window}" for window in WINDOWS)
DRAWN = {path: json.loads(text) for path, text in FILES.items() if path.endswith(".json")}
EXPRESSIONS = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]] + [
    target["expr"] for drawn in DRAWN.values() for panel in drawn["panels"] for target in panel["targets"]
]


@pytest.mark.parametrize("path", FILES)
def test_what_is_there_is_what_the_tables_make(path: str) -> None:
    assert (FOLDER / path).read_text("utf-8") == FILES[path], "run `make deploy`"


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_names_what_there_is(expression: str) -> None:
    assert list(find_faults(expression, RECORDED)) == []


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("sum(rate(tg_token_total[5m]))", "no metric is called tg_token_total"),
        ("sum by (model_name) (rate(tg_tokens_total[5m]))", "no metric of it has the label model_name"),
        ('sum(rate(tg_tokens_total{flow="a"}[5m]))', "tg_tokens_total has no label flow"),
        ("sum by (le) (rate(tg_tokens_total[5m]))", "no metric of it has the label le"),
        ("sum(rate(tg_first_token_seconds[5m]))", "no metric is called tg_first_token_seconds"),
    ],
)
def test_a_wrong_name_is_found(expression: str, fault: str) -> None:
    assert fault in list(find_faults(expression))


def test_choices_are_labels_of_their_metrics_and_legends_are_grouped_by() -> None:
    for dashboard in DASHBOARDS:
        if dashboard.choice is not None:
            label, metric = dashboard.choice
            assert label in KNOWN[metric].label_names
        for panel in dashboard.panels:
            for expression, legend in panel.series:
                assert all(re.search(rf"by \([^)]*\b{name}\b", expression) for name in re.findall(r"{{(\w+)}}", legend))


def test_each_alert_has_a_paragraph_and_no_other_has() -> None:
    runbook = (FOLDER / "RUNBOOK.md").read_text("utf-8")
    assert re.findall(r"^## (\w+)$", runbook, re.MULTILINE) == [alert.name for alert in ALERTS]
    for alert in ALERTS:
        for name in re.findall(r"\$labels\.(\w+)", alert.summary):
            assert re.search(rf"by \([^)]*\b{name}\b", alert.expression) or alert.expression.startswith("up{")


def promtool(*asked: str | Path) -> None:
    """Debian's package `prometheus` has it."""
    if (command := shutil.which("promtool")) is None:
        pytest.skip("there is no promtool: `apt-get install prometheus` on Debian")
    done = subprocess.run([command, *map(str, asked)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    promtool("check", "rules", FOLDER / "prometheus/rules.yaml")
    expressions = [{"record": f"e{number}", "expr": expression} for number, expression in enumerate(EXPRESSIONS)]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": expressions}]}), "utf-8")
    promtool("check", "rules", tmp_path / "all.yaml")


QUEUE = 'tg_queue_wait_seconds_bucket{service="text-completion",model="m",flow="f"'
REQUESTS = 'tg_gateway_requests_total{door="sse",service="text-completion"'
POOL = 'llm_d_epp_ready_endpoints{name="p"}'
OBJECTIVE = '{route="r",objective="ttft"}'
FIRING: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "TokengridErrorBudgetFastBurn": ({f'{REQUESTS},outcome="ok"}}': "0+90x90 8100+90x90",
                                      f'{REQUESTS},outcome="timeout"}}': "0+10x90 900+0x90"}, {}),
    "TokengridErrorBudgetSlowBurn": ({f'{REQUESTS},outcome="ok"}}': "0+990x90 89100+990x90",
                                      f'{REQUESTS},outcome="timeout"}}': "0+10x90 900+0x90"}, {}),
    "TokengridQueueGrowing": ({f'{QUEUE},le="5.0"}}': "0+1x90 90+10x90", f'{QUEUE},le="10.0"}}': "0+10x90 900+10x90",
                               f'{QUEUE},le="+Inf"}}': "0+10x90 900+10x90"},
                              {"service": "text-completion", "model": "m", "flow": "f"}),
    "TokengridQueueFull": ({'tg_refusals_total{service="s",reason="queue"}': "0+1x90 90+0x90"}, {"service": "s"}),
    "TokengridNoProcessor": ({'tg_refusals_total{service="s",reason="deserted"}': "0+1x90 90+0x90"}, {"service": "s"}),
    "TokengridProcessorsDying": ({'tg_attempts_total{service="s"}': "_x85 4+0x95"}, {"service": "s"}),
    "TokengridDeadLetters": ({'tg_poison_messages_total{topic="t"}': "_x85 1+0x95"}, {"topic": "t"}),
    "TokengridUsageLost": ({"tg_usage_lost_total": "0x85 3x95"}, {}),
    "TokengridBrokerAway": ({f'{REQUESTS},outcome="bus"}}': "_x85 8+0x95"}, {}),
    "TokengridTargetDown": ({'up{job="tokengrid-gateway",instance="i"}': "1x80 0x10 1x90"},
                            {"job": "tokengrid-gateway", "instance": "i"}),
    "TokengridProviderRefuses": ({'tg_provider_calls_total{model="m",outcome="unavailable",status="5xx"}':
                                  "0+3x90 270+0x90",
                                  'tg_provider_calls_total{model="m",outcome="ok",status=""}': "0+7x180"},
                                 {"model": "m"}),
    "TokengridGuessedTokens": ({"tg_gateway_auth_failures_total": "0+120x90 10800+0x90"}, {}),
    "TokengridPoolEmpty": ({POOL: "0x90 2x90"}, {"name": "p"}),
    "TokengridObjectiveMissed": ({f"tg_route_requests_total{OBJECTIVE}": "0+10x180",
                                  f"tg_route_requests_within_objective_total{OBJECTIVE}": "0+5x90 450+10x90",
                                  f"tg_route_objective_share{OBJECTIVE}": "0.9x180"},
                                 {"route": "r", "objective": "ttft"}),
}  # fmt: skip
"""Alert -> the series of a fault, a sample a minute, that ends after 90 minutes; and the labels of the alert."""


def expect(name: str, at: str, labels: dict[str, str] | None) -> dict[str, Any]:
    rule = next(alert.rule for alert in ALERTS if alert.name == name)
    told = {key: re.sub(r"{{ \$labels\.(\w+) }}", lambda found: (labels or {})[found[1]], text)
            for key, text in rule["annotations"].items()} if labels is not None else {}  # fmt: skip
    fired = [{"exp_labels": {**rule["labels"], **(labels or {})}, "exp_annotations": told}]
    return {"eval_time": at, "alertname": name, "exp_alerts": [] if labels is None else fired}


@pytest.mark.parametrize("name", [alert.name for alert in ALERTS])
def test_an_alert_fires_on_its_fault_and_ends_after_it(name: str, tmp_path: Path) -> None:
    series, labels = FIRING[name]
    test = {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "alert_rule_test": [expect(name, "90m", labels), expect(name, "170m", None)],
    }
    file = {"rule_files": [str(FOLDER / "prometheus/rules.yaml")], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(file), "utf-8")
    promtool("test", "rules", tmp_path / "test.yaml")
