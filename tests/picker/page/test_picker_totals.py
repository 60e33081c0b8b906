"""What pickers decide is counted many requests at a time, and all of it before somebody reads it."""

from collections import defaultdict
from random import Random

from prometheus_client import CollectorRegistry

from tests.picker.core.cases import endpoint, request
from tests.picker.page.shown_pool import ShownPool
from tg_base.telemetry import MAX_LABEL_VALUES
from tg_picker.core import InstanceUsage, Pick, Scheduler
from tg_picker.pools import Catalogue, Destination, Pool, PoolView, UseCase
from tg_picker.pools.metrics import DISTRIBUTIONS
from tg_picker.status import PoolBoard, PoolBoards, RequestFacts, RequestRecord
from tg_picker.status.picker_totals import MAX_NOTED

SERVERS = tuple(map(endpoint, "ab"))
ANSWERED = InstanceUsage.reported(100, 64, 11)


def read(boards: PoolBoards) -> dict[str, float]:
    """The numbers of the models' series, and of others by their names alone: sums over their labels."""
    found: defaultdict[str, float] = defaultdict(float)
    for family in boards.totals.registry.collect():
        for sample in family.samples:
            model = sample.labels.get("model_name")
            name = sample.name.removeprefix("llm_d_epp_")
            found[name if model is None else f"{name} {model}"] += sample.value
    return found


class Counted:
    """A picker of two servers."""

    def __init__(self) -> None:
        self.boards = PoolBoards(CollectorRegistry())
        self.scheduler = Scheduler("round-robin", random=Random(0))
        self.board = PoolBoard(
            "p", "round-robin", self.scheduler, ShownPool(PoolView()), lambda: 0.0, totals=self.boards.totals
        )

    def begin(self, model: str = "m", **again: bool) -> tuple[Pick, RequestRecord]:
        made = self.scheduler.pick(request(), SERVERS, 0.0)
        assert isinstance(made, Pick)
        facts = RequestFacts("r", model, Destination("p", "base"), 900)
        return made, self.board.record(facts, request(), made, 0.0001, **again)

    def answer(self, model: str = "m") -> None:
        made, record = self.begin(model)
        record.first_token(0.5)
        made.placement.finish(ANSWERED, 1.0)
        record.end(ANSWERED, 1.0)


def test_a_count_is_whole_whenever_it_is_read() -> None:
    counted = Counted()
    for number in range(1, 2 * MAX_NOTED + 3):
        counted.answer()
        if number in {1, MAX_NOTED - 1, MAX_NOTED, MAX_NOTED + 1, 2 * MAX_NOTED + 2}:
            found = read(counted.boards)
            assert (found["request_total m"], found["request_running m"]) == (number, 0)
            assert "request_error_total m" not in found
            assert found["scheduler_attempts_total"] == number
            assert found["flow_control_request_queue_duration_seconds_count"] == number
            assert {found[f"{name}_count m"] for name in DISTRIBUTIONS} == {number}
            assert found["request_size_bytes_sum"] == 900 * number


def test_no_more_is_noted_than_its_bound() -> None:
    counted = Counted()
    placed = [counted.begin() for _ in range(5 * MAX_NOTED)]
    # Nobody has read it, and nearly all is counted.
    totals, running = counted.board.totals, {"model_name": "m"}
    assert (totals.registry.get_sample_value("llm_d_epp_request_running", running) or 0) > 4 * MAX_NOTED
    for _, record in placed:
        record.end(None, 1.0)
    assert (totals.registry.get_sample_value("llm_d_epp_request_running", running) or 0) < MAX_NOTED
    assert read(counted.boards)["request_running m"] == 0


def test_a_server_that_answers_in_place_of_the_picked_one_is_no_other_pick() -> None:
    counted = Counted()
    made, record = counted.begin()
    record.move("another")
    record.fail("timeout", 504, 1.0)
    counted.begin(again=True)
    value = counted.boards.totals.registry.get_sample_value
    for name in "ab":
        picked = {"status": "success", "endpoint_name": name, "port": "8000"}
        assert value("llm_d_epp_scheduler_attempts_total", picked) == 1
    found = read(counted.boards)
    assert (found["request_total m"], found["request_running m"]) == (1, 1)
    model = {"model_name": "m", "target_model_name": "base"}
    assert value("llm_d_epp_request_error_total", model | {"error_code": "ModelServerError"}) == 1
    assert found["request_error_total m"] == 1
    assert made.endpoint in SERVERS


def test_the_end_is_counted_where_the_beginning_was() -> None:
    names: set[str] = set()
    boards = PoolBoards(CollectorRegistry())
    totals = boards.totals
    totals._models._is_configured = names.__contains__
    totals._models._foreign = 10_000
    counted = Counted()
    counted.boards, counted.board.totals = boards, totals
    _, record = counted.begin("new")
    assert read(boards)["request_running other"] == 1
    names |= {"new", "base"}
    record.end(None, 1.0)
    found = read(boards)
    assert {name: found[name] for name in found if "running" in name} == {"request_running other": 0}


def test_what_a_closing_picker_has_noted_is_counted_under_its_own_names() -> None:
    """Whether an operator named a model is known only while its picker is shown."""
    counted = Counted()
    counted.boards.totals._models._foreign = MAX_LABEL_VALUES
    case = UseCase("r", (("p", 1),))
    counted.board.pools = ShownPool(PoolView(Catalogue({"p": Pool("p", {}, ())}, {"m": case, "base": case})))
    with counted.boards.show(counted.board):
        counted.answer()
    model = {"model_name": "m", "target_model_name": "base"}
    assert counted.boards.totals.registry.get_sample_value("llm_d_epp_request_duration_seconds_count", model) == 1
    assert "request_total other" not in read(counted.boards)
