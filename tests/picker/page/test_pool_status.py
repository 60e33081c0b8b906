"""What pickers show: counts under published names, bounded labels, and why requests went where they did."""

import sys
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.picker.core.cases import endpoint, request, told
from tests.picker.page.shown_pool import ShownPool
from tg_base.telemetry.bounded_label import MAX_LABEL_CHARACTERS, MAX_LABEL_VALUES, OTHER
from tg_picker.core import (
    AdapterReport,
    Attained,
    InstanceRequest,
    InstanceUsage,
    LoadReport,
    Objective,
    Pick,
    Rejection,
    RouteSlo,
    Scheduler,
)
from tg_picker.core.policies.scheduler import STALE_SECONDS
from tg_picker.pools import Catalogue, Destination, Pool, PoolView, Slo, UseCase
from tg_picker.status import PoolBoard, PoolBoards, QueueStatus, RequestFacts, RequestRecord, explain, read_status
from tg_picker.status.picker_totals import PickerTotals
from tg_picker.status.pool_board import MAX_DECISIONS

SERVERS = (endpoint("a"), endpoint("b"))
PROMISES = (Slo("TimeToFirstToken", 1.0, 0.9), Slo("OutputTokenLatency", 0.1, 0.99))
ROUTE = UseCase("assistant", (("p", 1),), is_adapter=True, slos=PROMISES)
VIEW = PoolView(Catalogue({"p": Pool("p", {}, ())}, {"sentiment": ROUTE}), {"p": SERVERS})
TO_ADAPTER = Destination("p", "sentiment", "sentiment", 100, PROMISES, "assistant")


class Series(dict[str, float]):
    """A page's samples, by name and labels; the labels of a key may stand in any order."""

    def __missing__(self, key: str) -> float:
        ordered = sort_labels(key)
        if ordered == key:
            raise KeyError(key)
        return self[ordered]


def sort_labels(key: str) -> str:
    name, _, labels = key.removesuffix("}").partition("{")
    return f"{name}{{{','.join(sorted(labels.split(',')))}}}"


class Shown:
    """A picker of two servers, its board, and the page of its metrics."""

    def __init__(self, name: str = "tg-pick", boards: PoolBoards | None = None) -> None:
        self.now = 0.0
        self.registry = CollectorRegistry()
        self.boards = boards or PoolBoards(self.registry)
        self.scheduler = Scheduler("predicted-wait", random=Random(0))
        self.pools = ShownPool(VIEW, {"b:8000": "timeout"}, ("b:8000",))
        self.board = PoolBoard(name, "predicted-wait", self.scheduler, self.pools, lambda: self.now, totals=self.totals)

    @property
    def totals(self) -> PickerTotals:
        return self.boards.totals

    def pick(self, facts: RequestFacts, **asked: object) -> tuple[Pick, RequestRecord]:
        wanted = request(facts.destination.adapter if facts.destination else None, **asked)  # type: ignore[arg-type]
        made = self.scheduler.pick(wanted, SERVERS[:1], self.now)
        assert isinstance(made, Pick)
        return made, self.board.record(facts, wanted, made, 0.0001)

    def answer(self, facts: RequestFacts, first: float, seconds: float, tokens: int | None = 11) -> None:
        made, record = self.pick(facts)
        self.now += first
        record.first_token(self.now)
        self.now += seconds
        usage = InstanceUsage.reported(100, 64, tokens)
        made.placement.finish(usage, self.now)
        record.end(usage, self.now)

    def series(self) -> Series:
        """The page as Prometheus reads it, which refuses a page with a series twice."""
        found = Series()
        for family in text_string_to_metric_families(generate_latest(self.registry).decode()):
            for sample in family.samples:
                key = sort_labels(
                    f"{sample.name}{{{','.join(f'{at}={value}' for at, value in sample.labels.items())}}}"
                )
                assert key not in found
                found[key] = sample.value
        return found


@pytest.fixture
def shown() -> Iterator[Shown]:
    made = Shown()
    with made.boards.show(made.board):
        yield made


def facts(model: str = "sentiment", **fields: object) -> RequestFacts:
    return RequestFacts("r-1", model, TO_ADAPTER, 900, 2, **fields)  # type: ignore[arg-type]


def test_requests_are_counted_under_the_published_names_and_the_older_ones(shown: Shown) -> None:
    shown.answer(facts(), first=0.5, seconds=0.5)
    shown.answer(facts(), first=2.0, seconds=3.0)
    _, running = shown.pick(facts())
    _, failed = shown.pick(facts())
    failed.respond(503)
    failed.end(None, shown.now)
    shown.board.refuse(RequestFacts("r-2", "nobody"), Rejection("model-not-found", 404))
    found = shown.series()
    labels = "model_name=sentiment,target_model_name=sentiment"
    for name in ("llm_d_epp", "inference_objective"):
        assert found[f"{name}_request_total{{{labels},priority=0}}"] == 4
        assert found[f"{name}_request_error_total{{{labels},error_code=ServiceUnavailable}}"] == 1
        assert found[f"{name}_request_error_total{{model_name=nobody,target_model_name=,error_code=NotFound}}"] == 1
        assert found[f"{name}_request_ttft_seconds_sum{{{labels}}}"] == 2.5
        assert found[f"{name}_request_ttft_seconds_bucket{{{labels},le=0.5}}"] == 1
        assert found[f"{name}_request_duration_seconds_count{{{labels}}}"] == 2
    for name, older in RENAMED.items():
        same = [found[f"{each}_count{{{labels}}}"] for each in (f"llm_d_epp_{name}", f"inference_objective_{older}")]
        assert same == [2, 2]
    assert found["llm_d_epp_request_running{model_name=sentiment}"] == 1
    assert found["inference_objective_running_requests{model_name=sentiment}"] == 1
    assert found[f"llm_d_epp_request_streaming_tpot_seconds_sum{{{labels}}}"] == pytest.approx(0.35)
    assert found[f"llm_d_epp_request_output_tokens_sum{{{labels}}}"] == 22
    assert found[f"llm_d_epp_request_cached_tokens_sum{{{labels}}}"] == 128
    assert found["llm_d_epp_ready_endpoints{name=p}"] == found["inference_pool_ready_pods{name=p}"] == 1
    assert found["llm_d_epp_scheduler_attempts_total{status=success,endpoint_name=a,port=8000}"] == 4
    assert found["inference_extension_scheduler_attempts_total{status=success,pod_name=a,port=8000}"] == 4
    assert found["llm_d_epp_scheduler_e2e_duration_seconds_count{}"] == 4
    build = f"commit=,build_ref=tokengrid-{version('tokengrid-base')}"
    assert found[f"llm_d_epp_info{{{build}}}"] == found[f"inference_extension_info{{{build}}}"] == 1
    assert found["tg_route_requests_total{route=assistant,objective=TimeToFirstToken}"] == 2
    assert found["tg_route_requests_within_objective_total{route=assistant,objective=TimeToFirstToken}"] == 1
    assert found["tg_route_requests_total{route=assistant,objective=}"] == 2
    running.end(None, shown.now)
    assert shown.series()["llm_d_epp_request_running{model_name=sentiment}"] == 0


def test_a_whole_answer_has_a_duration_and_tokens_and_no_first_token(shown: Shown) -> None:
    wanted = InstanceRequest(streamed=False)
    made = shown.scheduler.pick(wanted, SERVERS[:1], shown.now)
    record = shown.board.record(facts(), wanted, made, 0.0001)
    record.first_token(shown.now + 3.0)
    shown.now += 3.0
    record.end(InstanceUsage(100, 64, 11), shown.now)
    found, labels = shown.series(), "model_name=sentiment,target_model_name=sentiment"
    assert found[f"llm_d_epp_request_duration_seconds_sum{{{labels}}}"] == 3
    assert found[f"llm_d_epp_request_output_tokens_sum{{{labels}}}"] == 11
    assert not [name for name in found if "ttft" in name or "_tpot" in name]


NAMES = {
    "request_total", "request_error_total", "request_slo_violation_total", "request_ttft_seconds",
    "request_streaming_tpot_seconds", "request_duration_seconds", "request_ntpot_seconds", "request_input_tokens",
    "request_output_tokens", "request_cached_tokens", "request_running", "request_size_bytes", "average_queue_size",
    "average_running_requests", "average_kv_cache_utilization", "ready_endpoints", "per_endpoint_queue_size",
    "scheduler_e2e_duration_seconds", "scheduler_attempts_total", "model_rewrite_decisions_total",
    "prefix_indexer_size", "prefix_indexer_hit_ratio", "prefix_indexer_hit_bytes", "flow_control_pool_saturation",
    "flow_control_queue_size", "flow_control_queue_bytes", "flow_control_request_queue_duration_seconds",
    "flow_control_requests_total", "info",
}  # fmt: skip
"""The ends of all names that begin with `llm_d_epp_`."""
RENAMED = {
    "request_streaming_tpot_seconds": "request_tpot_seconds",
    "request_ntpot_seconds": "normalized_time_per_output_token_seconds", "request_input_tokens": "input_tokens",
    "request_output_tokens": "output_tokens", "request_cached_tokens": "prompt_cached_tokens",
}  # fmt: skip
"""Those that ended in another way before llm-d-router had names of its own; all distributions by model."""
OTHERS = {
    "inference_pool_ready_pods", "inference_pool_per_pod_queue_size", "tg_pool_adapter_picks_total",
    "tg_pool_adapters_loaded", "tg_pool_adapter_slots", "tg_pool_adapter_servers", "tg_pool_requests",
    "tg_pool_prefixes_exact", "tg_route_requests_total", "tg_route_requests_within_objective_total",
    "tg_route_objective_share", "tg_route_attainment_ratio",
}  # fmt: skip


def test_these_names_and_no_others_are_published(shown: Shown) -> None:
    told = {f"{family.name}_total" if family.type == "counter" else family.name for family in shown.registry.collect()}
    assert {name.removeprefix("llm_d_epp_") for name in told if name.startswith("llm_d_epp_")} == NAMES
    older = {name for name in told if name.startswith("inference_")}
    new = {"ready_endpoints", "per_endpoint_queue_size", "flow_control_requests_total"}
    others = RENAMED | {"request_running": "running_requests", "request_size_bytes": "request_sizes"}
    assert {name.split("_", 2)[2] for name in older - OTHERS} == {others.get(name, name) for name in NAMES - new}
    assert told - older == {f"llm_d_epp_{name}" for name in NAMES} | {name for name in OTHERS if name[:3] == "tg_"}


def test_adapters_are_counted_by_whether_they_were_loaded(shown: Shown) -> None:
    for _ in range(3):
        shown.answer(facts(), first=0.1, seconds=0.1)
    shown.scheduler.observe(SERVERS[0], told(queued=3, kv=0.5, slots=4, running=2))
    found = shown.series()
    assert found["tg_pool_adapter_picks_total{pool=p,adapter=sentiment,result=load}"] == 1
    assert found["tg_pool_adapter_picks_total{pool=p,adapter=sentiment,result=loaded}"] == 2
    assert found["tg_pool_adapter_servers{pool=p,adapter=sentiment}"] == 1
    assert found["tg_pool_adapters_loaded{pool=p,server=a}"] == 1
    assert found["tg_pool_adapter_slots{pool=p,server=a}"] == 4
    assert found["inference_pool_average_queue_size{name=p}"] == 1.5
    assert found["llm_d_epp_average_kv_cache_utilization{name=p}"] == 0.25
    assert found["llm_d_epp_per_endpoint_queue_size{name=p,model_server_endpoint=a}"] == 3


def test_a_promise_of_the_request_itself_is_judged(shown: Shown) -> None:
    wanted = request()
    made = shown.scheduler.pick(wanted, SERVERS, 0.0)
    assert isinstance(made, Pick)
    asked = type(wanted)(objective=Objective(first_token=0.2, output_token=0.001))
    record = shown.board.record(facts(), asked, made, 0.0)
    record.first_token(0.3)
    record.end(InstanceUsage(output_tokens=2), 0.4)
    labels = "model_name=sentiment,target_model_name=sentiment,type"
    found = shown.series()
    assert found[f"llm_d_epp_request_slo_violation_total{{{labels}=ttft}}"] == 1
    assert found[f"inference_objective_request_slo_violation_total{{{labels}=tpot}}"] == 1


def test_names_of_clients_are_bounded_and_those_of_operators_are_not_crowded_out(shown: Shown) -> None:
    for number in range(2 * MAX_LABEL_VALUES):
        shown.board.refuse(RequestFacts("", f"made-up-{number}"), Rejection("model-not-found", 404))
    shown.answer(facts(), first=0.1, seconds=0.1)
    came = [name for name in shown.series() if name.startswith("llm_d_epp_request_total")]
    names = [name.partition("model_name=")[2].partition(",")[0] for name in came]
    assert len(names) == MAX_LABEL_VALUES + 2
    assert {OTHER, "sentiment", "made-up-0"} <= set(names)
    before = sum(name.startswith("llm_d_epp_request_ttft_seconds_count") for name in shown.series())
    assert before == 1, "what only failed has no distributions"


def test_a_name_that_is_no_text_spoils_no_page(shown: Shown) -> None:
    for name in ("\ud800", "m" * 1_000_000, 'a"b\n\\', "a\0b", "\x7f\x85\u2028"):
        where = Destination("p", name, name)
        shown.pick(RequestFacts(name, name, where))
    longest = max(map(len, generate_latest(shown.registry).decode().splitlines()))
    assert longest < 5 * MAX_LABEL_CHARACTERS
    assert len(shown.series()) > 20
    [picker] = read_status(shown.boards).pickers
    assert [each.model for each in picker.decisions] == ["???", "a?b", 'a"b?\\', "m" * MAX_LABEL_CHARACTERS, "?"]
    assert not {each for each in generate_latest(shown.registry) if each < 32} - {ord("\n")}


def test_a_lie_of_a_server_is_left_out(shown: Shown) -> None:
    for tokens in (-1, 10**30, 10**400):
        shown.answer(facts(), first=0.1, seconds=0.1, tokens=tokens)
    assert not [name for name in shown.series() if name.startswith("llm_d_epp_request_output_tokens")]


def test_an_old_report_is_shown_as_none_though_nobody_asks_for_a_server(shown: Shown) -> None:
    def show() -> tuple[str, int | None]:
        server = read_status(shown.boards).pickers[0].pools[0].servers[0]
        return server.state, server.queued

    shown.scheduler.observe(SERVERS[0], LoadReport(shown.now, queued=7))
    assert show() == ("ready", 7)
    assert shown.series()["llm_d_epp_average_queue_size{name=p}"] == 3.5
    shown.now += STALE_SECONDS + 0.1
    assert shown.series()["llm_d_epp_average_queue_size{name=p}"] == 0
    assert show() == ("stale", None)


def test_an_adapter_that_a_server_tells_to_be_in_use_is_not_idle(shown: Shown) -> None:
    for active in ("a", "b"):
        report = LoadReport(shown.now, adapters=AdapterReport(4, frozenset(active)))
        shown.scheduler.observe(SERVERS[0], report)
        shown.now += 1.0
    adapters = read_status(shown.boards).pickers[0].pools[0].servers[0].adapters
    assert {each.name: each.idle_seconds for each in adapters} == {"a": 2.0, "b": 0.0}


def test_two_pools_of_one_name_are_told_apart(shown: Shown) -> None:
    other = Shown("second", shown.boards)
    with shown.boards.show(other.board):
        found = shown.series()
        assert [found[f"llm_d_epp_ready_endpoints{{name={name}}}"] for name in ("p", "second/p")] == [1, 1]
        both = shown.boards.shown
        assert [picker.name for picker in read_status(shown.boards).pickers] == ["tg-pick", "second"]
    assert [picker.name for picker in read_status(shown.boards).pickers] == ["tg-pick"]
    assert both == (shown.board, other.board)


def test_the_last_decisions_are_kept_with_their_reasons(shown: Shown) -> None:
    for number in range(MAX_DECISIONS + 5):
        shown.board.refuse(RequestFacts(f"r-{number}", "nobody"), Rejection("model-not-found", 404))
    [picker] = read_status(shown.boards).pickers
    assert [each.request for each in picker.decisions[:2]] == ["r-204", "r-203"]
    assert len(picker.decisions) == MAX_DECISIONS
    made, record = shown.pick(facts(unreachable=1), blocks=(1, 2), tokens=128)
    made.placement.finish(None, shown.now)
    shown.now = 3.0
    record.first_token(1.0)
    [picker] = read_status(shown.boards).pickers
    newest = picker.decisions[0]
    assert (newest.seconds_ago, newest.server, newest.pool, newest.route) == (3.0, "a", "p", "assistant")
    assert (newest.outcome, newest.first_token_seconds, newest.seconds) == ("running", 1.0, None)
    assert newest.reasons[1:] == (
        "the adapter has to be loaded there first",
        "chosen among 2 servers",
        "1 left out, since nobody can reach them",
    )
    _, again = shown.pick(facts(), blocks=(1, 2), tokens=130)
    assert "128 of 130 tokens of the prompt are in its cache" in explain(again)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (lambda record: record.end(None, 1.0), "ended early"),
        (lambda record: (record.first_token(0.5), record.end(None, 1.0)), "answered"),
        (lambda record: (record.respond(500), record.end(None, 1.0), record.end(None, 2.0)), "status 500"),
        (lambda record: (record.fail("timeout", 504, 1.0), record.end(None, 2.0)), "timeout"),
        (lambda record: (record.end(None, 1.0, "another server was faster"), record.first_token(2.0)), "another "),
    ],
)
def test_however_a_request_ends_it_ends_once(shown: Shown, end: object, outcome: str) -> None:
    _, record = shown.pick(facts())
    end(record)  # type: ignore[operator]
    assert record.outcome.startswith(outcome)
    assert record.seconds == 1.0
    assert shown.series()["llm_d_epp_request_running{model_name=sentiment}"] == 0


def test_requests_that_wait_are_counted_by_priority() -> None:
    shown = Shown()
    waiting = (QueueStatus("p", -1, 7, 2.5, 900),)
    board = PoolBoard(
        "b", "random", shown.scheduler, shown.pools, lambda: 0.0, totals=shown.boards.totals, queues=lambda: waiting
    )
    with shown.boards.show(board):
        found = shown.series()
        assert found["llm_d_epp_flow_control_queue_size{priority=-1,inference_pool=p}"] == 7
        assert found["inference_extension_flow_control_queue_bytes{priority=-1,inference_pool=p}"] == 900
        assert read_status(shown.boards).pickers[0].queues == waiting


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("", "Dispatched"), ("expired", "EvictedTTL"), ("queue-full", "RejectedCapacity"), ("displaced", "EvictedOther")],
)
def test_how_long_a_request_waited_is_counted_with_how_that_ended(shown: Shown, reason: Any, outcome: str) -> None:
    made = shown.pick(facts())[0] if not reason else Rejection(reason, 429)
    before, shown.now = shown.now, shown.now + 2.0
    shown.board.record(facts(), InstanceRequest(priority=3), made, 0.0001, arrived_at=before)
    # Another attempt at the same request did not wait anew.
    shown.board.record(facts(), InstanceRequest(priority=3), made, 0.0001, again=True)
    found, labels = shown.series(), f"priority=3,outcome={outcome},inference_pool=p"
    for name in ("llm_d_epp", "inference_extension"):
        assert found[f"{name}_flow_control_request_queue_duration_seconds_count{{{labels}}}"] == 1
        assert found[f"{name}_flow_control_request_queue_duration_seconds_sum{{{labels}}}"] == 2
    assert found[f"llm_d_epp_flow_control_requests_total{{outcome={outcome},priority=3}}"] == 1


def test_what_was_promised_is_told_of_the_last_minute_where_it_is_watched() -> None:
    shown = Shown()
    attained = RouteSlo(Objective(1.0), 0, Attained(3, 4), Attained(0, 0))
    board = PoolBoard(
        "b", "random", shown.scheduler, shown.pools, lambda: 0.0, totals=shown.totals,
        attainment=lambda: {"assistant": attained},
    )  # fmt: skip
    shown.answer(facts(), first=2.0, seconds=1.0)
    with shown.boards.show(board), shown.boards.show(board):
        found = shown.series()
        assert found["tg_route_attainment_ratio{route=assistant,objective=TimeToFirstToken}"] == 0.75
        first, output = read_status(shown.boards).routes
    assert (first.requests, first.kept_share, first.recent_requests, first.recent_share) == (1, 0.0, 8, 0.75)
    assert (output.kept_share, output.recent_share) == (1.0, None)


def test_a_route_whose_requests_are_all_refused_is_shown(shown: Shown) -> None:
    shown.board.record(facts(), request(), Rejection("saturated", 429), 0.0)
    assert [(each.requests, each.kept_share) for each in read_status(shown.boards).routes] == [(0, None)] * 2
    assert shown.series()["tg_route_requests_total{route=assistant,objective=TimeToFirstToken}"] == 0


def test_a_route_that_promises_nothing_is_told_too_and_before_its_first_answer() -> None:
    cases = {name: UseCase(name, (("p", 1),)) for name in ("plain", "unused")}
    shown = Shown()
    shown.pools = ShownPool(PoolView(Catalogue({"p": Pool("p", {}, ())}, cases), {"p": SERVERS}))
    shown.board = PoolBoard("b", "random", shown.scheduler, shown.pools, lambda: 0.0, totals=shown.totals)
    shown.answer(RequestFacts("r-1", "plain", Destination("p", "plain", route="plain"), 900, 2), 2.0, 1.0)
    with shown.boards.show(shown.board):
        found = shown.series()
    told = {name: number for name, number in found.items() if name.startswith("tg_route")}
    assert told == {
        f"tg_route_requests_total{{objective=,route={name}}}": at for name, at in (("plain", 1), ("unused", 0))
    }


def test_a_record_costs_a_pick_few_calls(shown: Shown) -> None:
    """A pick has 100 microseconds; a call of a function takes about a tenth of one."""
    known = facts()
    shown.answer(known, first=0.1, seconds=0.1)
    wanted = request("sentiment")
    made = shown.scheduler.pick(wanted, SERVERS, shown.now)
    calls = count()
    sys.setprofile(lambda frame, event, _: next(calls) if event == "call" else None)
    try:
        shown.board.record(known, wanted, made, 0.0001)
    finally:
        sys.setprofile(None)
    assert next(calls) <= 8
