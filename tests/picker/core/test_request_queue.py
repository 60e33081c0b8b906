"""The order in which waiting requests go on: strict bands, fair flows, earliest deadlines; and what is bounded."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_picker.core import BandLimits, InstanceRequest, QueueLimits, Waiting
from tg_picker.core.queue.fair_flows import MAX_LEFT_FLOWS, FairFlows, FlowAccounts
from tg_picker.core.queue.priority_queue import PriorityQueue
from tg_picker.core.queue.request_queue import RequestQueue
from tg_picker.core.queue.waiting import MAX_FLOW_CHARACTERS
from tg_schema.errors import BadRequest

LANE = frozenset({"a:8000"})
OTHER_LANE = frozenset({"b:8000"})


def waiting(
    flow: str = "f", *, priority: int = 0, due: float = 9.0, expires: float = 99.0, size: int = 1, cost: int = 10
) -> Waiting:
    asked = InstanceRequest(priority=priority, flow=flow)
    return Waiting(asked, tuple, 0.0, due, expires, size, cost, LANE)


def order(queue: RequestQueue) -> list[Waiting]:
    """All that wait, in the order in which servers would get them."""
    taken = []
    while queue:
        head = queue.head(queue.priorities[0])
        assert head is not None
        queue.take(head)
        taken.append(head)
    return taken


def test_a_band_goes_before_all_lower_ones() -> None:
    queue = RequestQueue(QueueLimits(sheddable=True))
    added = [waiting(priority=priority, due=due) for priority, due in ((0, 1.0), (-1, 0.0), (100, 9.0), (0, 0.5))]
    for each in added:
        assert queue.add(each) == []
    assert queue.lengths == {100: 1, 0: 2, -1: 1}
    assert order(queue) == [added[2], added[3], added[0], added[1]]
    assert (len(queue), queue.size, queue.lengths, queue.next_expiry) == (0, 0, {}, None)


def test_flows_take_turns_by_what_they_cost() -> None:
    queue = RequestQueue(QueueLimits())
    for at in range(4):
        queue.add(waiting("long", cost=30, due=at))
    for at in range(8):
        queue.add(waiting("short", cost=10, due=at))
    assert "".join(each.flow[0] for each in order(queue)) == "lssslssslssl"


def test_a_flow_that_comes_back_gets_nothing_for_its_absence_and_still_pays() -> None:
    flows = FairFlows(FlowAccounts())
    for _ in range(6):
        flows.add(waiting("always"))
    flows.add(waiting("greedy", cost=35))
    assert [flows.take().flow for _ in range(2)] == ["always", "greedy"]
    flows.add(waiting("greedy"))  # has had 35, the other one 10
    assert [flows.take().flow for _ in range(4)] == ["always", "always", "always", "greedy"]
    flows.add(waiting("new"))
    assert [flows.take().flow for _ in range(2)] == ["new", "always"]


def test_names_of_flows_that_left_are_bounded() -> None:
    accounts = FlowAccounts()
    flows = FairFlows(accounts)
    flows.add(waiting("stays", cost=1, due=99.0))
    for number in range(MAX_LEFT_FLOWS + 10):
        gone = waiting(f"f{number}" + "x" * 10_000, cost=1_000_000 + number)
        flows.add(gone)
        while flows.take() is not gone:
            flows.add(waiting("stays", cost=1))
    assert len(accounts.left) <= MAX_LEFT_FLOWS
    assert max(map(len, accounts.left)) == MAX_FLOW_CHARACTERS


def test_lanes_do_not_wait_for_each_other() -> None:
    queue = RequestQueue(QueueLimits())
    first, other = waiting(), waiting()
    other.lane = OTHER_LANE
    queue.add(first)
    queue.add(other)
    assert queue.head(0) is first
    assert queue.head(0, {LANE}) is other
    queue.take(other)
    assert queue.head(0, {LANE}) is None
    assert queue.head(1) is None


def test_flows_take_turns_over_all_lanes_and_pay_in_each() -> None:
    queue = RequestQueue(QueueLimits())
    often, dear = [waiting("often", cost=10) for _ in range(5)], [waiting("dear", cost=25) for _ in range(2)]
    for each in dear:
        each.lane = OTHER_LANE
    for each in (*often, dear[0]):
        queue.add(each)
    taken = []
    while (head := queue.head(0)) is not None:
        queue.take(head)
        taken.append(head.flow)
        if head is dear[0]:
            # Its lane was empty for a moment; what it had is still known.
            queue.add(dear[1])
    assert taken == ["often", "dear", "often", "often", "dear", "often", "often"]


def test_who_makes_room_when_all_places_are_taken() -> None:
    queue = RequestQueue(QueueLimits(max_waiting=3, sheddable=True))
    low = [waiting(priority=-1, expires=expires) for expires in (5.0, 6.0)]
    middle = waiting(priority=0)
    for each in (*low, middle):
        queue.add(each)
    assert queue.add(waiting(priority=-1)) is None  # nobody is lower, and its flow has the most
    high = waiting(priority=1)
    assert queue.add(high) == [low[1]]
    assert queue.add(waiting(priority=1)) == [low[0]]
    assert queue.add(waiting(priority=1)) == [middle]
    assert queue.add(waiting(priority=1)) is None
    other = waiting("other", priority=1)
    displaced = queue.add(other)
    assert displaced is not None
    assert [each.flow for each in displaced] == ["f"]
    assert queue.add(waiting("other", priority=1)) is None  # two and one: an exchange would only turn them round


def test_bytes_are_bounded_as_well() -> None:
    queue = RequestQueue(QueueLimits(max_bytes=10, sheddable=True, bands=(BandLimits(0, max_bytes=6),)))
    low = [waiting(priority=-1, size=4), waiting(priority=-1, size=4)]
    for each in low:
        queue.add(each)
    assert queue.add(waiting(size=7)) is None  # above its band's bytes
    assert queue.add(waiting(priority=2, size=11)) is None  # above all bytes
    assert queue.size == 8
    assert queue.add(waiting(size=6)) == [low[1]]
    assert queue.add(waiting(priority=1, size=10)) is not None
    assert queue.size == 10


def test_a_band_of_its_own_size() -> None:
    queue = RequestQueue(QueueLimits(bands=(BandLimits(0, max_waiting=0), BandLimits(5, max_waiting=1))))
    assert queue.add(waiting()) is None
    assert queue.add(waiting(priority=5)) == []
    assert queue.add(waiting(priority=5)) is None
    assert RequestQueue(QueueLimits()).add(waiting(priority=-7)) is None
    assert RequestQueue(QueueLimits(max_waiting=0)).add(waiting()) is None


def test_wrong_limits_say_what_to_do() -> None:
    cases = {
        "waiting: priority 3 is repeated; keep one": QueueLimits(bands=(BandLimits(3), BandLimits(3))),
        "waiting: max_waiting of priority 3 is 8, above the queue's 5; lower it": QueueLimits(
            5, bands=(BandLimits(3, 8),)
        ),
    }
    for sentence, limits in cases.items():
        with pytest.raises(BadRequest) as refused:
            limits.check("waiting")
        assert refused.value.message == sentence


def test_requests_that_leave_do_not_stay_in_the_queue() -> None:
    queue = PriorityQueue[int]()
    for number in range(1_000):
        queue.push(number // 2, number)
    for number in range(990):
        queue.discard(number)
        queue.discard(number)
    assert len(queue) == 10
    assert [queue.pop() for _ in range(10)] == list(range(990, 1_000))


EVENTS = st.tuples(
    st.sampled_from(["add", "add", "add", "take", "leave", "expire"]),
    st.integers(-2, 2),
    st.sampled_from("abc"),
    st.integers(1, 9),
    st.integers(0, 30),
)
LIMITS = QueueLimits(
    max_waiting=6, max_bytes=30, sheddable=True, bands=(BandLimits(-2, 2), BandLimits(1, max_bytes=12))
)


@dataclass
class World:
    """A queue, and where every request that was ever asked for is."""

    queue: RequestQueue = field(default_factory=lambda: RequestQueue(LIMITS))
    inside: list[Waiting] = field(default_factory=list)
    now: float = 0.0

    def act(self, event: str, priority: int, flow: str, size: int, number: int) -> None:
        if event == "add":
            asked = waiting(flow, priority=priority, size=size, due=number, expires=self.now + number, cost=size)
            displaced = self.queue.add(asked)
            if displaced is not None:
                assert all(each.priority <= priority for each in displaced)
                self.inside = [each for each in self.inside if each not in displaced] + [asked]
        elif event == "expire":
            self.now += number / 3
            expired = self.queue.expire(self.now)
            assert {id(each) for each in expired} == {id(e) for e in self.inside if e.expires_at <= self.now}
            self.inside = [each for each in self.inside if each not in expired]
        elif not self.inside:
            return
        elif event == "leave":
            self.queue.remove(self.inside.pop(number % len(self.inside)))
        else:
            self.take()

    def take(self) -> None:
        head = self.queue.head(self.queue.priorities[0])
        assert head is not None
        assert head.priority == max(each.priority for each in self.inside)
        same = [each for each in self.inside if (each.priority, each.flow) == (head.priority, head.flow)]
        assert head.due == min(each.due for each in same)
        self.queue.take(head)
        self.inside.remove(head)

    def check(self) -> None:
        assert len(self.queue) == len(self.inside) <= LIMITS.max_waiting
        assert self.queue.size == sum(each.size for each in self.inside) <= LIMITS.max_bytes
        for priority, count in self.queue.lengths.items():
            band = [each for each in self.inside if each.priority == priority]
            most, size = LIMITS.band(priority)
            assert count == len(band) <= most
            assert sum(each.size for each in band) <= size


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, max_size=60))
def test_whatever_happens_it_is_bounded_and_loses_nothing(events: list[tuple[str, int, str, int, int]]) -> None:
    world = World()
    for event in events:
        world.act(*event)
        world.check()
    left = len(world.inside)
    assert len(order(world.queue)) == left


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), min_size=1, max_size=80))
def test_flows_that_always_wait_differ_by_one_request_at_most(asked: list[tuple[str, int]]) -> None:
    flows = FairFlows(FlowAccounts())
    costs = {name: [cost for flow, cost in asked if flow == name] for name in "abc"}
    for name, each in costs.items():
        for at, cost in enumerate(each):
            flows.add(waiting(name, cost=cost, due=at))
    had = dict.fromkeys(filter(costs.get, "abc"), 0)
    largest = max(cost for _, cost in asked)
    left = {name: len(each) for name, each in costs.items()}
    while all(left[name] for name in had):
        taken = flows.take()
        had[taken.flow] += taken.cost
        left[taken.flow] -= 1
        assert max(had.values()) - min(had.values()) <= largest
