"""Schedulers that tell each other what they do: whatever the bus does to their messages, they come to know the same."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.picker.core.cases import request
from tests.picker.core.sharing_pickers import ENDPOINTS, NOTHING, ROUNDS, STEP_SECONDS, Picker, exchange, settle
from tg_picker.core import (
    Fingerprint,
    InstanceUsage,
)
from tg_picker.core.peers.delta import Ask, Batch, Heartbeat, Placed, decode_delta, encode_delta
from tg_picker.core.peers.shared_state import SharingTiming
from tg_picker.core.state.resident_adapters import MAX_ADAPTERS

FAULTS = st.tuples(
    st.sampled_from(["pick", "first", "finish", "404", "flush", "deliver", "lose", "again", "restart"]),
    st.integers(0, 30),
)


class World:
    """Three pickers, and what is under way between them."""

    def __init__(self) -> None:
        self.pickers = [Picker(origin) for origin in (1, 2, 3)]
        self.under_way: list[tuple[int, bytes]] = []
        self.origins = 3
        self.now = 0.0

    def act(self, event: str, number: int) -> None:
        self.now += number / 100
        at = number % 3
        picker = self.pickers[at]
        running = [each for each in picker.placements if not each.ended]
        if event == "pick":
            picker.pick(request("xyz"[number % 3], tokens=64 * number, blocks=tuple(range(number))), self.now)
        elif event == "404":
            picker.scheduler.forget_adapter(ENDPOINTS[at], "x", self.now)
        elif event == "flush":
            self.send(at, picker.shared.flush(self.now))
        elif event == "restart":
            self.origins += 1
            self.pickers[at] = Picker(self.origins)
        elif event in {"first", "finish"} and running:
            chosen = running[number % len(running)]
            chosen.first_token(self.now) if event == "first" else chosen.finish(None, self.now)
        elif self.under_way:
            where = number % len(self.under_way)
            to, body = self.under_way[where]
            if event != "lose":
                self.pickers[to].shared.receive(body, self.now)
            if event != "again":
                del self.under_way[where]

    def send(self, sender: int, bodies: list[bytes]) -> None:
        self.under_way += [(to, body) for body in bodies for to in range(3) if to != sender]


@settings(max_examples=150, deadline=None)
@given(events=st.lists(FAULTS, max_size=80))
def test_messages_in_any_order_lost_and_repeated_end_in_the_same_knowledge(events: list[tuple[str, int]]) -> None:
    world = World()
    for event in events:
        world.act(*event)
    now = settle(world.pickers, world.now)
    for at in range(3):
        seen = [picker.counters()[at] for picker in world.pickers]
        assert seen[1:] == seen[:-1]
        open_here = [
            each
            for picker in world.pickers
            for each in picker.placements
            if not each.ended and each.address == ENDPOINTS[at].address
        ]
        assert seen[0][0] == len(open_here)
    for picker in world.pickers:
        for placement in picker.placements:
            placement.finish(None, now)
    settle(world.pickers, now)
    assert [picker.counters() for picker in world.pickers] == [[NOTHING] * 3] * 3
    assert not any(server.active for picker in world.pickers for server in picker.scheduler.servers)


def test_an_old_snapshot_brings_nothing_back() -> None:
    first, second = Picker(1), Picker(2)
    running = first.pick(request("x"), 0.0, at=0)
    first.shared.flush(0.0)
    first.shared.receive(encode_delta(Ask(2, 1)), 0.0)
    old = first.shared.flush(0.0)
    second.shared.receive(encode_delta(Heartbeat(1, 1)), 0.0)
    for body in old:
        second.shared.receive(body, 0.0)
    assert second.counters()[0][0] == 1
    running.finish(None, 0.1)
    for body in first.shared.flush(0.1):
        second.shared.receive(body, 0.1)
    assert second.counters() == [NOTHING] * 3
    second.shared.receive(encode_delta(Heartbeat(1, 9)), 0.1)
    for body in old:
        second.shared.receive(body, 0.1)
    assert second.counters() == [NOTHING] * 3


def test_a_newcomer_learns_what_is_in_flight_and_what_servers_have() -> None:
    old = [Picker(1), Picker(2)]
    for number in range(40):
        placement = old[number % 2].pick(request("xy"[number % 2], tokens=640, blocks=(7, 8, number + 10)), 0.0)
        if number % 3:
            placement.first_token(0.1)
        if number % 5:
            placement.finish(None, 0.2)
    now = settle(old, 0.2)
    new = Picker(3)
    settle([*old, new], now)
    for at in range(3):
        assert new.counters()[at] == old[0].counters()[at]
    assert (new.blocks(), new.loaded()) == (old[0].blocks(), old[0].loaded())
    # Also in the order in which they will be forgotten.
    newest, oldest = ([*each.scheduler.server(ENDPOINTS[0]).prefixes.blocks] for each in (new, old[0]))
    assert newest == oldest


def test_a_newcomer_learns_what_servers_told() -> None:
    """Which it may not have heard itself, if servers keep too few events."""
    old, new = Picker(1), Picker(2)
    prefixes = old.scheduler.server(ENDPOINTS[0]).prefixes
    for block in (7, 8, 9, 17, 18):
        prefixes.tell(block, block - 1)
    old.pick(request("x", tokens=320, blocks=(7, 8, 9, 10)), 0.0, at=0)
    settle([old, new], 0.0)
    assert new.scheduler.server(ENDPOINTS[0]).prefixes.match(Fingerprint((7, 8, 9, 10, 11))) == 4
    assert new.scheduler.server(ENDPOINTS[0]).prefixes.match(Fingerprint((17, 18, 19))) == 2


def test_who_is_alone_tells_only_that_it_is_there_until_another_one_comes() -> None:
    first, newcomer = Picker(1), Picker(2)
    now = settle([first], 0.0)
    ended = first.pick(request("x", tokens=640, blocks=(1, 2)), now, at=0)
    stays = first.pick(request("y", tokens=640, blocks=(1, 3)), now, at=1)
    ended.first_token(now + 0.1)
    ended.finish(None, now + 0.2)
    first.scheduler.forget_adapter(ENDPOINTS[2], "x", now + 0.2)
    assert list(map(decode_delta, first.shared.flush(now + 1.0))) == [Heartbeat(1, 0)]
    now = settle([first, newcomer], now + 1.0)
    assert newcomer.counters() == first.counters()
    assert (newcomer.blocks(), newcomer.loaded()) == (first.blocks(), first.loaded())
    stays.finish(None, now)
    exchange([first, newcomer], now)
    assert newcomer.counters() == [NOTHING] * 3


def test_who_hears_nobody_for_a_while_tells_those_who_heard_it_what_they_missed() -> None:
    first, second = Picker(1), Picker(2)
    now = settle([first, second], 0.0)
    running = first.pick(request("x", tokens=640, blocks=(1, 2)), now, at=0)
    now = settle([first, second], now)
    for _ in range(ROUNDS):
        now += STEP_SECONDS
        for body in first.shared.flush(now):
            second.shared.receive(body, now)
    running.finish(None, now)
    first.pick(request("y", tokens=640, blocks=(1, 3)), now, at=1)
    settle([first, second], now)
    assert second.counters() == first.counters()


def test_more_adapters_in_use_than_a_server_remembers_are_told_as_far_as_may_be() -> None:
    first, newcomer = Picker(1), Picker(2)
    for number in range(MAX_ADAPTERS + 1):
        first.pick(request(f"adapter-{number}"), 0.0, at=0)
    exchange([first], 0.03)
    settle([first, newcomer], 0.03)
    assert (first.shared.dropped["poison"], newcomer.shared.dropped["poison"]) == (0, 0)
    assert newcomer.shared._has_learnt


def test_the_requests_of_a_dead_picker_are_dropped_and_what_servers_have_is_not() -> None:
    first, second = Picker(1), Picker(2)
    first.pick(request("x", tokens=200, blocks=(1, 2)), 0.0, at=0)
    exchange([first, second], 0.03)
    second.shared.flush(SharingTiming().dead_after)
    assert second.shared.peers == {1: 1}
    second.shared.flush(SharingTiming().dead_after + 0.1)
    assert (second.counters(), second.shared.peers) == ([NOTHING] * 3, {})
    assert (second.blocks()[0], second.loaded()[0]) == ({1, 2}, {"x"})
    exchange([first, second], SharingTiming().dead_after + 0.2)
    settle([first, second], SharingTiming().dead_after + 0.2)
    assert second.counters()[0] == first.counters()[0]
    # A leave, as pickers once sent it, is anybody's word.
    now = SharingTiming().dead_after + 1.0 + ROUNDS * STEP_SECONDS
    assert not second.shared.receive(msgspec.msgpack.encode([6, 1]), now)
    assert second.counters()[0] == first.counters()[0]


def test_the_beginning_of_a_prompt_that_one_has_forgotten_is_asked_for() -> None:
    first, second = Picker(1), Picker(2)
    first.pick(request(tokens=640, blocks=(1, 2, 3)), 0.0, at=0)
    now = settle([first, second], 0.0)
    second.scheduler.server(ENDPOINTS[0]).prefixes.clear()
    first.pick(request(tokens=640, blocks=(1, 2, 3, 4)), now, at=0)
    exchange([first, second], now + 0.03)
    assert second.blocks()[0] == set()
    settle([first, second], now + 0.03)
    assert second.blocks()[0] == {1, 2, 3, 4}
    assert second.scheduler.server(ENDPOINTS[0]).prefixes.match(Fingerprint((1, 2, 3, 4, 5))) == 4


def test_a_server_that_one_does_not_know_yet_counts_once_it_does() -> None:
    first, second = Picker(1), Picker(2, ENDPOINTS[1:])
    first.pick(request("x", tokens=200, blocks=(1, 2)), 0.0, at=0)
    exchange([first, second], 0.03)
    assert second.shared.dropped["unknown-server"] == 1
    assert second.scheduler.servers == ()
    second.known[ENDPOINTS[0].address] = ENDPOINTS[0]
    second.shared.refresh()
    settle([first, second], 0.03)
    assert second.counters()[0] == first.counters()[0]


def test_what_one_learns_of_a_server_s_speed_and_of_answers_the_other_learns_too() -> None:
    first, second = Picker(1), Picker(2)
    for number in range(20):
        now = float(number)
        placement = first.pick(request("x", tokens=100 * number), now, at=0)
        placement.first_token(now + 0.05 + 0.005 * number)
        placement.finish(InstanceUsage(output_tokens=400), now + 0.9)
        exchange([first, second], now + 0.95)
        for picker in (first, second):
            picker.scheduler.expire(now + 0.95)
    for picker in (first, second):
        speed = picker.scheduler.server(ENDPOINTS[0]).speed
        assert 0.00005 < speed.prompt_token_seconds < 0.0001
        assert speed.fixed_seconds < 0.06
    learnt = [
        (speed.prompt_token_seconds, speed.fixed_seconds, speed.output_token_seconds)
        for speed in (picker.scheduler.server(ENDPOINTS[0]).speed for picker in (first, second))
    ]
    assert learnt[1] == pytest.approx(learnt[0], rel=0.01)
    assert len({each.pick(request("x"), 30.0).expected_tokens for each in (first, second)} - {128}) == 1


def test_a_lie_about_an_answer_teaches_nothing() -> None:
    picker, address = Picker(1), ENDPOINTS[0].address
    lies = [(1, 100_000_000, 1), (2, 0, 1)]
    placed = [Placed(number, 0, None, 10, 10, 10, started=True) for number in (1, 2)]
    picker.shared.receive(encode_delta(Batch(9, 0, [address], placed, [], lies)), 0.0)
    assert picker.counters() == [NOTHING] * 3
    assert picker.pick(request(), 0.1).expected_tokens == 128


def test_a_404_is_told() -> None:
    first, second = Picker(1), Picker(2)
    first.pick(request("x"), 0.0, at=0).finish(None, 0.1)
    exchange([first, second], 0.13)
    first.scheduler.forget_adapter(ENDPOINTS[0], "x", 0.15)
    exchange([first, second], 0.2)
    assert second.loaded()[0] == set()
    assert second.scheduler.missing.without(ENDPOINTS, "x") == [*ENDPOINTS[1:]]
    # Nobody tells on what he was told.
    exchange([first, second], 0.3)
    assert first.scheduler.missing.without(ENDPOINTS, "x") == [*ENDPOINTS[1:]]
