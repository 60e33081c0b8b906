"""The histogram of the hot path shows exactly what the client library's own would show."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from tg_base.telemetry import Label, Metric
from tg_base.telemetry.histogram import LightHistogram

BUCKETS = (0.00005, 0.25, 1.0, 60.0)
AMOUNTS = st.floats(0, 100) | st.sampled_from([*BUCKETS, 0.0])


def lines(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


@given(st.lists(st.tuples(st.sampled_from(["text-completion", 'a"b\\\n']), AMOUNTS)))
def test_the_same_text_as_the_library(observed: list[tuple[str, float]]) -> None:
    light, full = CollectorRegistry(), CollectorRegistry()
    metric = Metric("tg_x_seconds", "histogram", "What it is", (Label("service", "any"),), BUCKETS)
    ours, theirs = LightHistogram(metric, registry=light), metric.histogram(full)
    for service, amount in observed:
        ours.labels(service).observe(amount)
        theirs.labels(service).observe(amount)
    assert lines(light) == lines(full)
