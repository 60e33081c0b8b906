"""Metrics: each is a row of its distribution's table, and shows the labels of that row, few of what others choose."""

import ast

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from prometheus_client import REGISTRY

from tests.unit.source_imports import FILES, ROOT, tree_of
from tg_base.telemetry import MAX_LABEL_VALUES, BoundedLabel, Label, Metric, MetricTable, labels
from tg_base.telemetry import metrics as base
from tg_base.telemetry.bounded_label import MAX_LABEL_CHARACTERS, OTHER
from tg_gateway.telemetry import metrics as gateway
from tg_picker.pools import metrics as picker

TABLES = {module.__name__: module.METRICS for module in (base, gateway, picker)}
ROWS = {row.name: row for table in TABLES.values() for row in table.rows}
MAKERS = {"tg_base.telemetry.metric", "tg_base.telemetry.metric_table", "tg_base.telemetry.histogram"}
"""Modules that make metrics of rows."""
FACE = {"tg_base.telemetry"}
DECLARING = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum", "MetricTable", "LightHistogram"}


def declared(module: str) -> set[str]:
    """What a module imports to declare metrics by, and the declaring methods of a table that it calls."""
    found = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("prometheus_client", "tg_base.tele")):
            found |= {name.name for name in node.names if name.name in DECLARING or "MetricFamily" in name.name}
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "METRICS":
            found.add(f"METRICS.{node.attr}")
    return found


def test_no_metric_is_declared_outside_of_the_tables() -> None:
    assert declared("tg_gateway.telemetry.metrics") >= {"MetricTable", "METRICS.histogram"}
    assert {
        module: declared(module) for module in FILES.keys() - TABLES.keys() - MAKERS - FACE if declared(module)
    } == {}


def test_names_say_the_kind() -> None:
    assert len(ROWS) == sum(len(table.rows) for table in TABLES.values())
    for name, row in ROWS.items():
        assert (row.kind == "counter") is name.endswith("_total")
        assert len(set(row.label_names)) == len(row.label_names)
        assert (row.kind == "histogram") is bool(row.buckets)


def test_the_page_shows_what_the_rows_say() -> None:
    shown = {
        sample.name: (family.type, family.documentation, set(sample.labels) - {"le"})
        for family in REGISTRY.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    ours = {name: row for row in ROWS.values() for name in row.samples}
    told = {name: (row.kind, row.text, set(row.label_names)) for name, row in ours.items()}
    assert {name: series for name, series in shown.items() if name.startswith(("tg_", "gen_ai_"))}.items() <= (
        told.items()
    )


def test_the_pages_name_every_metric_of_pools() -> None:
    page = (ROOT / "picker/docs/instances.md").read_text("utf-8")
    names = [row.name.removeprefix(picker.NEW) for row in picker.METRICS.rows]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize("label", [labels.MODEL, labels.FLOW, labels.KEY])
def test_a_label_of_names_by_others_has_few_values_of_few_characters(label: Label) -> None:
    # Of its own: other tests count their models too.
    assert label.bound.__qualname__ == BoundedLabel.bound.__qualname__
    metric = Metric("tg_x_total", "counter", "X", (label._replace(bound=BoundedLabel().bound),))
    found = {metric.bound((f"{number:0>1000000}"[::-1],))[0] for number in range(MAX_LABEL_VALUES + 100)}
    assert label.most == MAX_LABEL_VALUES
    assert OTHER in found
    assert len(found) <= MAX_LABEL_VALUES + 1
    assert max(map(len, found)) == MAX_LABEL_CHARACTERS


def test_all_further_keys_are_one() -> None:
    made = MetricTable()
    find = made.finder("tg_y_total", "Y", Label("key", "a key", 1, lambda name: name if name == "a" else OTHER))
    try:
        assert find("b") is find("c")
        assert find("a") is not find("b")
    finally:
        REGISTRY.unregister(REGISTRY._names_to_collectors["tg_y_total"])


def test_published_names_are_those_of_the_conventions() -> None:
    known = {
        each for names in (gen_ai_metrics, gen_ai_attributes) for each in vars(names).values() if type(each) is str
    }
    shown = {name.replace(".", "_") for name in known}
    for name, row in ROWS.items():
        if name.startswith("gen_ai_"):
            assert name.removesuffix("_seconds") in shown
            assert {label for label in row.label_names if label.startswith("gen_ai_")} <= shown
