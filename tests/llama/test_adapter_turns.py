"""Streams of several LoRA adapters on one context: whose turn a step is."""

from random import Random
from typing import cast

import pytest

from tg_llama.lora.adapter_turns import TURN_SECONDS, TURN_STEPS, AdapterTurns, Group
from tg_llama.native.weights import Adapter

A, B, C = (cast(Adapter, object()) for _ in range(3))
"""In place of adapters, of which the turns need nothing."""


def turns_of(*groups: Group) -> AdapterTurns:
    turns = AdapterTurns()
    for group in groups:
        turns.enter(group)
    return turns


def test_one_group_has_all_steps() -> None:
    turns = turns_of(A, A)
    assert not turns.mixed
    assert [turns.choose(0.0) for _ in range(3 * TURN_STEPS)] == [A] * (3 * TURN_STEPS)


def test_groups_take_turns_in_the_order_in_which_they_came() -> None:
    turns = turns_of(B, None, A)
    chosen = [turns.choose(0.0) for _ in range(6 * TURN_STEPS)]
    assert chosen[::TURN_STEPS] == [None, B, A, None, B, A]
    assert [chosen.count(group) for group in (A, B, None)] == [2 * TURN_STEPS] * 3


def test_a_slow_turn_ends_with_its_step() -> None:
    turns = turns_of(A, B)
    assert [turns.choose(number * TURN_SECONDS) for number in range(4)] == [A, B, A, B]


def test_a_group_that_ends_gives_its_turn_away() -> None:
    turns = turns_of(A, B)
    assert turns.choose(0.0) is A
    turns.leave(A)
    assert not turns.has(A)
    assert turns.choose(0.0) is B


@pytest.mark.parametrize("seed", range(20))
def test_no_group_waits_longer_than_one_turn_of_each_other(seed: int) -> None:
    random = Random(seed)
    turns, waited = AdapterTurns(), dict[Group, int]()
    streams: list[Group] = []
    for _ in range(2_000):
        if len(streams) < 2 or (len(streams) < 12 and random.random() < 0.2):
            streams.append(random.choice((None, A, B, C)))
            turns.enter(streams[-1])
        elif random.random() < 0.2:
            ended = streams.pop(random.randrange(len(streams)))
            turns.leave(ended)
        chosen = turns.choose(0.0)
        assert chosen in streams
        waited = {group: 0 if group is chosen else waited.get(group, 0) + 1 for group in set(streams)}
        assert max(waited.values()) <= 3 * TURN_STEPS
