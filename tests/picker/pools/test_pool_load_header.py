"""ORCA's response header -> load: vLLM's and Triton's words, both forms, any text; and what of a report stays."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tg_picker.core import AdapterReport, LoadReport
from tg_picker.pools import merge_reports, read_load_header

VLLM = "TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=3"
VLLM_JSON = 'JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 3.0}}'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (VLLM, LoadReport(7, 3, kv_usage=0.4)),
        (VLLM_JSON, LoadReport(7, 3, kv_usage=0.4)),
        ("TEXT cpu_utilization=0.3, eps=1, named_metrics.kv_cache_utilization=0.25", LoadReport(7, kv_usage=0.25)),
        ("  text named_metrics.num_requests_running=2  ", LoadReport(7, running=2)),
        ("TEXT num_requests_running=2,num_requests_running=5,,=,x", LoadReport(7, running=2)),
        ('json {"cpu_utilization": "x", "named_metrics": {"a": "b", "num_requests_waiting": 1}}', LoadReport(7, 1)),
        ("TEXT named_metrics.num_requests_waiting=-1, named_metrics.kv_cache_usage_perc=0.4", None),
        ("TEXT named_metrics.num_requests_waiting=nan", None),
        ("TEXT named_metrics.kv_cache_usage_perc=40", None),
        ("TEXT named_metrics.num_requests_waiting=1_0", None),
        ("TEXT cpu_utilization=0.3", None),
        ('JSON {"named_metrics": {"num_requests_waiting": true}}', None),
        ('JSON {"named_metrics": [', None),
        ('JSON {"named_metrics": 5}', None),
        ("JSON " + "[" * 100_000, None),
        ('JSON {"named_metrics": {"x": 1' + "0" * 400 + ', "num_requests_waiting": 1}}', LoadReport(7, 1)),
        ("JSON \udcff{}", None),
        ("BIN CAESAA==", None),
        ("", None),
    ],
)  # fmt: skip
def test_headers(value: str, expected: LoadReport | None) -> None:
    assert read_load_header(value, 7) == expected


@given(st.text() | st.builds(lambda form, text: f"{form} {text}", st.sampled_from(["TEXT", "JSON"]), st.text()))
def test_any_text_is_read(value: str) -> None:
    read_load_header(value, 0)


NUMBERS = st.floats() | st.integers() | st.booleans() | st.none() | st.text(max_size=3)


@given(st.dictionaries(st.sampled_from(["num_requests_waiting", "kv_cache_usage_perc", "other"]), NUMBERS))
def test_what_is_told_is_believable_in_both_forms(metrics: dict[str, Any]) -> None:
    text = "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())
    for value in (text, f"JSON {msgspec.json.encode({'named_metrics': metrics}).decode()}"):
        report = read_load_header(value, 0)
        if report is not None:
            assert report.queued is None or 0 <= report.queued <= 10_000_000
            assert report.kv_usage is None or 0 <= report.kv_usage <= 1


ADAPTERS = AdapterReport(4, frozenset("a"))


def test_what_is_not_told_stays_for_a_while() -> None:
    scraped = LoadReport(10, 1, 2, 0.5, 16, 100, ADAPTERS, {"a": 1}, interval=1.0)
    merged = merge_reports(scraped, LoadReport(11, queued=5))
    assert merged == LoadReport(11, 5, 2, 0.5, 16, 100, ADAPTERS, {"a": 1}, interval=1.0, kept_at=10)
    again = merge_reports(merged, LoadReport(12, queued=6))
    assert again == LoadReport(12, 6, 2, 0.5, 16, 100, ADAPTERS, {"a": 1}, interval=1.0, kept_at=10)
    late = merge_reports(again, LoadReport(12.5, queued=7, interval=2.0))
    assert late == LoadReport(12.5, 7, block_tokens=16, blocks=100, interval=2.0, kept_at=12.5)


def test_a_first_header_and_an_old_one() -> None:
    update = LoadReport(5, queued=1)
    assert merge_reports(None, update) is update
    assert merge_reports(LoadReport(6, running=1), update) is update


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from(["queued", "running"])), max_size=20))
def test_no_load_is_older_than_it_may_be(steps: list[tuple[float, str]]) -> None:
    """Each number is the time at which it was told."""
    now = 0.0
    last: LoadReport | None = None
    for pause, field in steps:
        now += pause
        told = round(now * 1000)
        last = merge_reports(last, msgspec.structs.replace(LoadReport(now), **{field: told}))
        assert all(number is None or number >= now * 1000 - 2001 for number in (last.queued, last.running))
        assert getattr(last, field) == told
