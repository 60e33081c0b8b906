"""Masks that are written a little wrongly are refused where the json module refuses them, whichever way they go."""

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tg_base.runtime import finish
from tg_doors.lmtp import mask
from tg_doors.lmtp.request import read_generate
from tg_llama.core.logit_bias import LogitBias
from tg_schema import Sampling
from tg_schema.errors import BadRequest

VOCABULARY = 300
TOKEN_ID = re.compile(r"-?0|[1-9][0-9]*", re.ASCII)
PIECES = [*'{}[]":, \t-+.eE0157', '": ', ', "', "null", "true", '"1": 5', "\\", "a", "NaN"]
WHOLE = st.lists(st.tuples(st.integers(0, 120), st.sampled_from([100, -100, 7])), min_size=1, max_size=40)
MIXED = st.lists(st.tuples(st.integers(0, 120), st.integers(-100, 100) | st.floats(-100, 100)), min_size=1, max_size=20)
SPACES = st.sampled_from([(", ", ": "), (",", ":"), (",\n", ":"), (" , ", " :  ")])
MUTATIONS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 3), st.sampled_from(PIECES)), max_size=2)


def pack(data: bytes, *features: str) -> Mapping[str, str]:
    """Fields of all masks that are an object, read in many slices."""
    return finish(mask.pack_mask(data, frozenset(features), size=60, least=0))


def mutate(text: str, changes: list[tuple[int, int, str]]) -> str:
    """The text with some characters replaced by others, or by none."""
    for place, length, piece in changes:
        start = place % (len(text) + 1)
        text = text[:start] + piece + text[start + length :]
    return text


def parse(text: str) -> Mapping[int, float] | None:
    """What the json module reads, if that is a mask; None = it is none."""
    try:
        found: Any = json.loads(text, parse_constant=lambda _: None)
    except json.JSONDecodeError:
        return None
    # The last of a name's values counts, but others have to be numbers too.
    pairs = json.loads(text, object_pairs_hook=list) if isinstance(found, dict) else [(None, None)]
    for name, value in pairs:
        if name is None or not TOKEN_ID.fullmatch(name) or int(name) >= VOCABULARY:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not -100 <= value <= 100:
            return None
    return {int(name): value for name, value in found.items()}


async def read(text: str) -> tuple[np.ndarray[Any, Any] | None, bool]:
    """What it adds to the logits, None = it is refused; and whether it was packed."""
    data, fields = text.encode(), dict[str, Any]()
    try:
        fields |= pack(data, "packed_bias", "packed_floats")
        sampling = Sampling(**(fields or {"logit_bias": finish(mask.read_mask(data, 60))}))
        packed = sampling.packed_bias
        bias = LogitBias.of(sampling.logit_bias or {}) if packed is None else finish(LogitBias.unpack(packed, 40))
        if packed is not None or sampling.logit_bias:
            bias.check(VOCABULARY)
    except BadRequest:
        return None, bool(fields)
    logits = np.zeros(VOCABULARY)
    bias.add_to(logits)
    return logits, bool(fields)


def expect(text: str) -> np.ndarray[Any, Any] | None:
    """The same, as the json module has it."""
    found = parse(text)
    if found is None:
        return None
    logits = np.zeros(VOCABULARY)
    for token, bias in found.items():
        logits[token] = np.float32(bias)
    return logits


def same(one: np.ndarray[Any, Any] | None, other: np.ndarray[Any, Any] | None) -> bool:
    return one is other if one is None or other is None else bool((one == other).all())


def write(entries: list[tuple[int, float]], separators: tuple[str, str]) -> str:
    """Ids that come twice are written twice."""
    comma, colon = separators
    return "{" + comma.join(f'"{token}"{colon}{bias}' for token, bias in entries) + "}"


@settings(max_examples=300, deadline=None)
@given(WHOLE | MIXED, SPACES, MUTATIONS)
@example([(1001 % 120, 5)], (", ", ": "), [(3, 0, '"')])
async def test_a_mutated_mask_is_read_as_json_is(
    entries: list[tuple[int, float]], separators: tuple[str, str], changes: list[tuple[int, int, str]]
) -> None:
    # The reader of the message leaves no blanks around it.
    text = mutate(write(entries, separators), changes).strip()
    assert same((await read(text))[0], expect(text)), text


LONG = ", ".join(f'"{number}": 100' for number in range(100, 140))


@pytest.mark.parametrize(
    "member",
    [
        *('"10"0: 5', '"1": 5 0', '"1":5 0', '"1" 0: 5', '0"1": 5', '"1": 5, 0"2": 5', '"1": 05', '"1": 5.', '"1": .5'),
        *('"1": -', '"1": +5', '"1": 1e', '"1": 1-', '"1": 100.000001', '"1": 1e2', '"1": 5,', '"1": 5,, "2": 5', ""),
        *(
            '"1": 5, "2": "3"',
            '"1,2": 3',
            '"1": {"2": 3}',
            '"1": [2]',
            '"1\\u0030": 5',
            '-"1": 5',
            '"-1": 5',
            '"-0": 5',
        ),
        *('"01": 5', '"-1": 5', '"1.0": 5', '"": 5', '"1": 1E+1', '"1": -0.0'),
    ],
)
@pytest.mark.parametrize("place", [0, 17, 40])
async def test_one_odd_member_among_many(member: str, place: int) -> None:
    members = LONG.split(", ")
    members.insert(place, member)
    text = "{" + ", ".join(members) + "}"
    assert same((await read(text))[0], expect(text)), text


@pytest.mark.parametrize("bias", [100, -100, 0.5])
async def test_what_is_written_plainly_is_packed(bias: float) -> None:
    text = json.dumps(dict.fromkeys(range(VOCABULARY), bias))
    assert (await read(text))[1]
    tokens = random.Random(1).sample(range(VOCABULARY), VOCABULARY)
    shuffled = json.dumps({token: token % 7 - bias / 2 for token in tokens})
    assert (await read(shuffled))[1]
    assert same((await read(shuffled))[0], expect(shuffled))


async def test_a_message_whose_mask_is_no_json() -> None:
    """The mask is cut out of its message unread."""
    long = "{" + LONG * 100 + ', "1"0: 5}'
    apart = read_generate(b'{"stream_id":1,"model":"m","prompt":[1],"logit_bias":%b}' % long.encode())[1]
    assert apart == long.encode()
    assert pack(apart, "packed_bias") == {}
    with pytest.raises(BadRequest, match="not valid JSON"):
        finish(mask.read_mask(apart, 60))
