"""Pages of metrics -> load: vLLM's, SGLang's and Triton's, old and new names, and any bytes at all."""

import math
from dataclasses import replace
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.model_server_pages import Load, sglang_page, triton_page, vllm_page
from tg_picker.core import AdapterReport, LoadReport
from tg_picker.pools.metrics_page import MetricsPage
from tg_picker.pools.page_reader import read_page
from tg_picker.pools.scraper import ScrapeOptions
from tg_picker.pools.server_kinds import SERVER_KINDS, Metric

BUSY = Load(3, 12, 0.25)
KINDS = ["auto", *SERVER_KINDS]


def test_each_kind_can_be_configured() -> None:
    assert list(get_args(get_type_hints(ScrapeOptions)["kind"])) == KINDS


def test_each_kind_has_its_page_where_its_servers_do() -> None:
    assert ScrapeOptions(kind="trtllm-serve").page_path == "/prometheus/metrics"
    assert ScrapeOptions().page_path == ScrapeOptions(kind="vllm").page_path == "/metrics"
    assert ScrapeOptions(kind="trtllm-serve", path="/m").page_path == "/m"


def test_vllm() -> None:
    page = vllm_page(BUSY)
    assert 400 < page.count(b"\n") < 600
    assert read_page(page, "vllm", 7.0) == LoadReport(7.0, 3, 12, 0.25, 16, 11560)
    assert read_page(page, "auto", 7.0) == read_page(vllm_page(BUSY, old=True), "vllm", 7.0)
    assert read_page(page, "sglang", 7.0) is None


def test_the_engines_of_a_data_parallel_server_are_one() -> None:
    told = read_page(vllm_page(Load(3, 12, 0.25, engines=4)), "vllm", 0)
    assert told == LoadReport(0, 12, 48, 0.25, 16, 4 * 11560)


def test_adapters_are_those_of_the_newest_series() -> None:
    load = Load(slots=4, active=("b", "c"), before=[("a",), ("a", "b"), ()])
    told = read_page(vllm_page(load), "vllm", 0)
    assert told is not None
    assert told.adapters == AdapterReport(4, frozenset("bc"), frozenset("bc"))
    idle = read_page(vllm_page(Load(slots=4, before=[("a",)])), "vllm", 0)
    assert idle is not None
    assert idle.adapters == AdapterReport(4)


def test_resident_adapters() -> None:
    load = Load(slots=2, active=("b",), resident={"a": "cpu", "b": "gpu"})
    told = read_page(vllm_page(load), "vllm", 0)
    assert told is not None
    assert told.adapters == AdapterReport(2, frozenset("b"), frozenset("b"), {"a": "cpu", "b": "gpu"})
    none = read_page(vllm_page(Load(slots=2, resident={})), "vllm", 0)
    assert none is not None
    assert none.adapters == AdapterReport(2, resident={})


def test_sglang_counts_neither_ranks_nor_priorities_twice() -> None:
    expected = LoadReport(1, 3, 12, 0.25, 64, 4096)
    assert read_page(sglang_page(BUSY), "auto", 1) == expected
    assert read_page(sglang_page(BUSY, ranks=4), "sglang", 1) == expected


@pytest.mark.parametrize("ranks", [1, 2])
def test_sglang_counts_each_engine_of_data_parallel_attention(ranks: int) -> None:
    load = replace(BUSY, engines=4)
    assert read_page(sglang_page(load, ranks=ranks), "auto", 1) == LoadReport(1, 12, 48, 0.25, 64, 4 * 4096)


def test_triton() -> None:
    assert read_page(triton_page(BUSY), "auto", 1) == LoadReport(1, 3, 12, 0.25, 64, 6239)


def test_triton_with_two_models_adds_their_blocks_but_not_the_size_of_one() -> None:
    page = triton_page(BUSY)
    draft = page.replace(b'model="tensorrt_llm"', b'model="draft"')
    assert read_page(page + draft, "auto", 1) == LoadReport(1, 6, 24, 0.25, 64, 2 * 6239)


PAGES = [
    ("trtllm-serve", b"trtllm_num_requests_waiting 2\ntrtllm_kv_cache_max_blocks 9.0\n", LoadReport(0, 2, blocks=9)),
    ("llama.cpp", b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n", LoadReport(0, 4, 1)),
    (
        "tokengrid",
        b'tg_active_streams{service="prompt"} 9.0\ntg_active_streams{service="text-completion"} 2.0\n',
        LoadReport(0, running=2),
    ),
    ("vllm", b"vllm:num_requests_waiting 2 1395066363000\r\n", LoadReport(0, 2)),
    ("vllm", b"vllm:num_requests_waiting 2.0 1520879607.789\n# EOF\n", LoadReport(0, 2)),
    ("vllm", b'vllm:num_requests_waiting{a="x"} 2.0 # {trace_id="0"} 1.0 1.5e9\n', LoadReport(0, 2)),
    ("vllm", b"vllm:num_requests_waiting 2.0 3 4\n", None),
    ("vllm", b"vllm:num_requests_waiting\t2\n", LoadReport(0, 2)),
    ("vllm", b'vllm:num_requests_waiting{ a = "x" , } 2e1\n', LoadReport(0, 20)),
    ("vllm", b'vllm:num_requests_waiting{a="}\\" 5\\\\"} 2\n', LoadReport(0, 2)),
    ("vllm", b'vllm:num_requests_waiting{a="x"} 1\nvllm:num_requests_waiting{a="x"} 2\n', LoadReport(0, 2)),
    ("vllm", b'vllm:num_requests_waiting{a="\xff"} 1\nvllm:num_requests_running 1\xff\n', LoadReport(0, 1)),
    ("vllm", b"vllm:num_requests_waiting_total 1\n# vllm:num_requests_waiting 2\n", None),
    ("vllm", b"vllm:num_requests_waiting 12", None),
    ("vllm", b"vllm:num_requests_waiting 1_0\n", None),
    ("vllm", b"vllm:num_requests_waiting -1\n", None),
    ("vllm", b"vllm:num_requests_waiting NaN\nvllm:num_requests_running 1\n", None),
    ("vllm", b"vllm:num_requests_waiting +Inf\n", None),
    ("vllm", b"vllm:num_requests_waiting 1e18\n", None),
    ("vllm", b'vllm:num_requests_waiting{e="0"} -1\nvllm:num_requests_waiting{e="1"} 5\n', None),
    ("vllm", b"vllm:kv_cache_usage_perc 55.0\n", None),
    ("vllm", b"vllm:kv_cache_usage_perc -0.1\n", None),
    ("vllm", b"", None),
    ("vllm", b"vllm:num_requests_waiting 2\nprocess_start_time_seconds 1.7e9\n", LoadReport(0, 2, started_at=1.7e9)),
    ("vllm", b"vllm:num_requests_waiting 2\nprocess_start_time_seconds NaN\n", LoadReport(0, 2)),
    ("vllm", b"process_start_time_seconds 1.7e9\n", None),
]


@pytest.mark.parametrize(("kind", "page", "expected"), PAGES)
def test_single_lines(kind: str, page: bytes, expected: LoadReport | None) -> None:
    assert read_page(page, kind, 0) == expected


def test_a_metric_may_have_very_many_series() -> None:
    page = b"".join(b'vllm:num_requests_running{a="%d"} 1\n' % number for number in range(20_000))
    assert len(MetricsPage(page).find(Metric("vllm:num_requests_running"))) == 5_000


def check(report: LoadReport | None) -> None:
    """A report is None, or all of it can be believed."""
    if report is None:
        return
    for count in (report.queued, report.running, report.block_tokens, report.blocks):
        assert count is None or 0 <= count <= 10_000_000
    assert report.kv_usage is None or (math.isfinite(report.kv_usage) and 0 <= report.kv_usage <= 1)


@given(st.binary(max_size=200), st.sampled_from(KINDS))
def test_any_bytes_are_read(page: bytes, kind: str) -> None:
    check(read_page(page, kind, 0))


_LINES = vllm_page(Load(3, 12, 0.25, 4, ("a",), {"a": "gpu"})).splitlines()[:45]
SMALL = b"".join(line + b"\n" for line in _LINES if b"_total" not in line)
DAMAGE = st.binary(max_size=6) | st.sampled_from([b"NaN", b"-1", b"1e99"])


@given(st.integers(0, len(SMALL)), st.integers(0, 30), DAMAGE)
def test_a_damaged_page_never_raises(at: int, cut: int, damage: bytes) -> None:
    check(read_page(SMALL[:at] + damage + SMALL[at + cut :], "auto", 0))


@given(st.integers(0, len(SMALL)))
def test_half_a_page_tells_no_other_numbers(at: int) -> None:
    whole, half = read_page(SMALL, "vllm", 0), read_page(SMALL[:at], "vllm", 0)
    assert whole is not None
    if half is not None:
        assert half.queued in {None, whole.queued}
        assert half.running in {None, whole.running}
        assert half.kv_usage in {None, whole.kv_usage}
        assert half.blocks in {None, whole.blocks}
