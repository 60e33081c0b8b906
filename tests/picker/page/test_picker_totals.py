"""What pickers decide is counted many requests at a time, and all of it before somebody reads it."""

from random import Random

from prometheus_client import CollectorRegistry

from tests.picker.core.cases import endpoint, request
from tests.picker.page.shown_pool import ShownPool
from tg_picker.core import InstanceUsage, Pick, Scheduler
from tg_picker.pools import Catalogue, Destination, Pool, PoolView, UseCase
from tg_picker.status import PoolBoard, PoolBoards, RequestFacts, RequestRecord
from tg_picker.status.bounded_label import MAX_LABEL_VALUES
from tg_picker.status.picker_totals import MAX_NOTED

SERVERS = tuple(map(endpoint, "ab"))
ANSWERED = InstanceUsage.reported(100, 64, 11)


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
            totals = counted.boards.totals
            [series] = totals.series.values()
            assert (series.requests, series.running, series.errors) == ({0: number}, 0, {})
            assert sum(totals.picks.values()) == number
            assert {sum(cells.counts) for cells in (*series.cells.values(), *totals.queued.values())} == {number}
            assert totals.request_bytes.total == 900 * number


def test_no_more_is_noted_than_its_bound() -> None:
    counted = Counted()
    totals = counted.boards.totals
    placed = [counted.begin() for _ in range(5 * MAX_NOTED)]
    # Nobody has read it, and nearly all is counted.
    assert totals.series["m", "base"].running > 4 * MAX_NOTED
    for _, record in placed:
        record.end(None, 1.0)
    assert totals.series["m", "base"].running < MAX_NOTED
    assert counted.boards.totals.series["m", "base"].running == 0


def test_a_server_that_answers_in_place_of_the_picked_one_is_no_other_pick() -> None:
    counted = Counted()
    made, record = counted.begin()
    record.move("another")
    record.fail("timeout", 504, 1.0)
    counted.begin(again=True)
    totals = counted.boards.totals
    assert set(totals.picks) == {("success", name, "8000") for name in "ab"}
    [series] = totals.series.values()
    assert (series.requests, series.running, series.errors) == ({0: 1}, 1, {"ModelServerError": 1})
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
    assert boards.totals.series["other", "other"].running == 1
    names |= {"new", "base"}
    record.end(None, 1.0)
    assert {names: each.running for names, each in boards.totals.series.items()} == {("other", "other"): 0}


def test_what_a_closing_picker_has_noted_is_counted_under_its_own_names() -> None:
    """Whether an operator named a model is known only while its picker is shown."""
    counted = Counted()
    counted.boards.totals._models._foreign = MAX_LABEL_VALUES
    case = UseCase("r", (("p", 1),))
    counted.board.pools = ShownPool(PoolView(Catalogue({"p": Pool("p", {}, ())}, {"m": case, "base": case})))
    with counted.boards.show(counted.board):
        counted.answer()
    assert set(counted.boards.totals.series) == {("m", "base")}
