"""What strangers tell a picker and how much pickers tell each other: all is bounded, and nonsense changes nothing."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.picker.core.cases import request
from tests.picker.core.sharing_pickers import ENDPOINTS, NOTHING, Picker, exchange, settle
from tg_picker.core import (
    Endpoint,
    Pick,
    Scheduler,
    SharedState,
)
from tg_picker.core.peers.delta import MAX_PLACED, Batch, Heartbeat, Known, Placed, encode_delta, pack_blocks
from tg_picker.core.peers.journal import MAX_PENDING
from tg_picker.core.peers.shared_state import MAX_ADOPTED, MAX_PEERS, MAX_WANTS

PLACED = Placed(1, 0, None, 10, 10, 10)


WRONG = {
    "empty": b"",
    "nonsense": b"\xc1" * 100,
    "another thing": msgspec.msgpack.encode({"origin": 9}),
    "unknown kind": msgspec.msgpack.encode([99, 9, 0]),
    "half": encode_delta(Batch(9, 0, ["a"], [PLACED]))[:-3],
    "no such name": encode_delta(Batch(9, 0, [], [PLACED])),
    "no such adapter": encode_delta(Batch(9, 0, ["a"], [Placed(1, 0, 1, 10, 10, 10)])),
    "negative": encode_delta(Batch(9, 0, ["a"], [Placed(1, 0, None, -10, 10, 10)])),
    "a lie": encode_delta(Batch(9, 0, ["a"], [Placed(1, 0, None, 10**12, 10, 10)])),
    "no number": encode_delta(Heartbeat(9, "x")),  # type: ignore[arg-type]
    "half a block": encode_delta(Batch(9, 0, ["a"], [Placed(1, 0, None, 10, 10, 10, False, None, b"123")])),
    "no hash": encode_delta(Known(9, "a", [], [(None, pack_blocks([2**64 - 1]))])),
    "lacking nothing": encode_delta(Batch(9, 0, ["a"], [], [], [], [(0, 1)])),
    "deep": b"\x91" * 100_000,
    "long": b"\x00" * 5_000_000,
    "right but for its length": encode_delta(Batch(9, 0, [f"{number:0>500}" for number in range(3_000)], [PLACED])),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_wrong_message_is_counted_and_changes_nothing(body: bytes) -> None:
    picker = Picker(1)
    picker.shared.receive(body, 0.0)
    assert picker.shared.dropped == {"poison": 1}
    assert (picker.shared.peers, picker.counters()) == ({}, [NOTHING] * 3)


@settings(max_examples=200, deadline=None)
@given(cut=st.integers(0, 200), value=st.integers(0, 255))
def test_a_message_with_any_byte_changed_closes_all_the_same(cut: int, value: int) -> None:
    first, second = Picker(1), Picker(2)
    first.pick(request("x", tokens=200, blocks=(1, 2)), 0.0, at=0).first_token(0.1)
    (body,) = first.shared.flush(0.1)
    changed = bytearray(body)
    changed[cut % len(body)] = value
    second.shared.receive(bytes(changed), 0.1)
    second.shared.flush(100.0)
    assert (second.counters(), second.shared.peers) == ([NOTHING] * 3, {})


def test_what_strangers_tell_is_bounded() -> None:
    picker = Picker(1)
    address = ENDPOINTS[0].address
    for origin in range(2, MAX_PEERS + 12):
        picker.shared.receive(encode_delta(Heartbeat(origin, 5)), 0.0)
    assert (len(picker.shared.peers), picker.shared.dropped["poison"]) == (MAX_PEERS, 10)
    unknown = [Placed(number, 0, None, 0, 0, 0, False, number + 1) for number in range(1_000)]
    picker.shared.receive(encode_delta(Batch(2, 0, [address], unknown)), 0.0)
    assert len(picker.shared.flush(0.1)) <= MAX_PEERS + MAX_WANTS + 2
    # Blocks that lead in a circle.
    picker.shared.receive(encode_delta(Known(2, address, [], [(None, pack_blocks([5, 6, 5]))])), 0.0)
    picker.shared.receive(encode_delta(Known(2, address, [], [(6, pack_blocks([5]))])), 0.0)
    assert picker.blocks()[0] <= {5, 6}
    picker.pick(request(tokens=640, blocks=(5, 6, 7)), 0.2, at=0)


def test_blocks_of_a_picker_of_an_older_version_are_taken() -> None:
    """It has 60 bits of a hash, and is not heard at all if they are too many."""
    picker, address, block = Picker(1), ENDPOINTS[0].address, 2**60 - 1
    placed = Placed(1, 0, None, 640, 640, 10, False, None, pack_blocks([block - 1, block]), 640)
    picker.shared.receive(encode_delta(Batch(2, 0, [address], [placed])), 0.0)
    picker.shared.receive(encode_delta(Known(2, address, [], [(block, pack_blocks([block - 2]))])), 0.0)
    assert picker.shared.dropped == {}
    assert picker.blocks()[0] == {block - 2, block - 1, block}


def test_what_nobody_fetches_is_thrown_away_and_asked_for() -> None:
    first, second = Picker(1), Picker(2)
    running = first.pick(request("x"), 0.0, at=0)
    for _ in range(MAX_PENDING // 2):
        first.pick(request("y"), 0.0, at=1).finish(None, 0.0)
    assert sum(map(len, first.shared.flush(0.1))) < 1_000_000
    settle([first, second], 0.1)
    assert second.counters()[0] == first.counters()[0]
    running.finish(None, 30.0)


@pytest.mark.parametrize("name", ["x" * 600, "\ud800", "x\n"])
def test_a_client_s_name_that_cannot_be_told_is_left_out(name: str) -> None:
    first, second = Picker(1), Picker(2)
    first.pick(request(name), 0.0, at=0)
    first.scheduler.forget_adapter(ENDPOINTS[0], name, 0.0)
    settle([first, second], 0.0)
    assert (second.shared.dropped["poison"], second.counters()[0][:2]) == (0, [1, 1])


def test_a_request_costs_200_bytes_and_8_a_new_block() -> None:
    """Each event in a message of its own, which is the dearest; names as long as they are in clusters."""
    where = (Endpoint("[2001:db8:85a3:8d3:1319:8a2e:370:7348]:8000", "s"),)
    scheduler = Scheduler()
    shared = SharedState(scheduler, {where[0].address: where[0]}.get, 2**60 - 1)
    size = new = 0
    for number in range(1_000):
        blocks = tuple(hash((number % 40, at)) % 2**60 for at in range(number % 20))
        made = scheduler.pick(request("customer-sentiment-v2", tokens=1_250, blocks=blocks), where, number)
        assert isinstance(made, Pick)
        new += len(blocks) if number < 40 else 0
        size += sum(map(len, shared.flush(number)))
        made.placement.first_token(number)
        size += sum(map(len, shared.flush(number)))
        made.placement.finish(None, number)
        size += sum(map(len, shared.flush(number)))
    assert size <= 1_000 * 200 + 8 * new


def test_what_is_placed_by_others_is_bounded_for_each_and_for_all() -> None:
    picker, address = Picker(1), ENDPOINTS[0].address
    placed = [Placed(number, 0, None, 0, 0, 0) for number in range(MAX_PLACED + 1)]
    for origin in range(2, 13):
        for seq, part in enumerate((placed[:5], placed[5:])):
            picker.shared.receive(encode_delta(Batch(origin, seq, [address], part)), 0.0)
    counts = list(picker.shared.peers.values())
    assert (max(counts), sum(counts)) == (MAX_PLACED, MAX_ADOPTED)
    assert picker.shared.dropped == {"too-many": 11 * (MAX_PLACED + 1) - MAX_ADOPTED}


def test_a_number_that_no_batch_will_have_is_asked_about_once() -> None:
    first, second = Picker(1), Picker(2)
    exchange([first, second], 0.03)
    second.shared.receive(encode_delta(Heartbeat(1, 2**60)), 0.1)
    assert second.shared._peers[1].is_behind
    settle([first, second], 0.1)
    assert not second.shared._peers[1].is_behind
