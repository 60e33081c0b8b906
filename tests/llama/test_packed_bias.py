"""A mask of a vocabulary, from its JSON to the arrays of llama.cpp, without an object for each entry."""

import json
import re
import struct
from base64 import b64encode
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_base.runtime import Steps, finish
from tg_doors.lmtp.mask import pack_bias, pack_mask
from tg_llama.core.logit_bias import LogitBias
from tg_schema import Sampling, decode
from tg_schema.errors import BadRequest

VOCABULARY = 4096
PAIRS = re.compile(r"(N,-?N)(,N,-?N)*".replace("N", r"(0|[1-9]\d{0,8})"), re.ASCII)


def unpack(text: str) -> LogitBias:
    return finish(LogitBias.unpack(text))


def unpack_floats(text: str) -> LogitBias:
    return finish(LogitBias.unpack_floats(text))


def added(bias: LogitBias) -> list[float]:
    """What it adds to each logit."""
    logits = np.zeros(VOCABULARY)
    bias.add_to(logits)
    return [float(each) for each in logits]


def pack(text: str) -> str | None:
    return finish(pack_bias(text.encode()))


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
@pytest.mark.parametrize(("value", "step"), [(100, 1), (-100, 2), (7, 1), (0.1, 1), (-99.99999999999999, 2), (3e-7, 1)])
def test_a_packed_mask_is_the_same_as_its_mapping(separators: tuple[str, str], value: float, step: int) -> None:
    mask = dict.fromkeys(range(0, VOCABULARY, step), value) | {8: -value, 16: 0}
    text = json.dumps(mask, separators=separators)
    packed = pack(text)
    assert packed is not None
    assert added(unpack(packed)) == added(LogitBias.of(mask))


@pytest.mark.parametrize("value", [100, -100, 7])
@pytest.mark.parametrize("odd", [{}, {9: -7, 1234: 12}, dict.fromkeys(range(0, VOCABULARY, 9), -3)])
def test_entries_of_many_lengths(value: int, odd: dict[int, int]) -> None:
    mask = dict.fromkeys(range(VOCABULARY), value) | odd
    text = ",".join(f"{number},{bias}" for number, bias in mask.items())
    assert added(unpack(text)) == added(LogitBias.of(mask))


@pytest.mark.parametrize(
    "member", ["4500,1", "-5,1", "3,101", "3,-101", "3,1000000", "3,-", "12345678,1", "3", "", "3,1,"]
)
@pytest.mark.parametrize("place", [0, 1000, 2999, 3000])
def test_one_wrong_entry_among_thousands(member: str, place: int) -> None:
    entries = [f"{number},100" for number in range(3000)]
    entries.insert(place, member)
    with pytest.raises(BadRequest, match=r"sampling\.logit_bias"):
        unpack(",".join(entries)).check(VOCABULARY)


@pytest.mark.parametrize("texts", ["5,1,3,2,5,7", "5,1e0,3,2.0,5,7", "5,0.5,3,2E+0,5,700e-2"])
def test_a_token_that_comes_twice_counts_once(texts: str) -> None:
    assert added(unpack(texts)) == added(LogitBias.of({5: 7, 3: 2}))


LONG = ", ".join(f'"{number}": 100' for number in range(3000))


@pytest.mark.parametrize(
    "text",
    [
        "null",
        '{"1": 100}',
        "[" + "1, " * 9000 + "1]",
        f'{{{LONG}, "5": "100"}}',
        f'{{{LONG}, "5": Infinity}}',
        f'{{{LONG}, "5": null}}',
        f'{{{LONG}, "5 6": 100}}',
        f'{{{LONG}, "5,6": 100}}',
        f'{{{LONG}, "a": 100}}',
        f'{{{LONG},  "5": 100}}',
        f'{{{LONG}, "5": {{"6": 100}}}}',
        f'{{"a": 100, {LONG}}}',
        f"{{{LONG},}}",
        f"{{{LONG}}},",
    ],
)
def test_other_forms_are_read_entry_by_entry(text: str) -> None:
    assert pack(text) is None


@pytest.mark.parametrize(
    "member",
    [
        *('"-5": 1', '"": 1', '"05": 1', '"5": 1e999', '"5": 1e3', '"5": 101', '"5": 100.000001', '"5": -100.000001'),
        *('"5.0": 1', '"5e0": 1', '"123456789012345678901": 1.5'),
    ],
)
def test_what_is_no_id_or_no_bias_is_refused_where_the_mask_is_read(member: str) -> None:
    packed = pack(f"{{{LONG}, {member}}}")
    assert packed is not None
    with pytest.raises(BadRequest, match=r"sampling\.logit_bias"):
        unpack(packed).check(VOCABULARY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1,2,3",
        ",1",
        "1,",
        "1,,2,3",
        "1,-",
        "1,--2",
        "1,2-3",
        "1,-,2,3",
        "-,1",
        "1,101",
        "1,-101",
        "1.5,2",
        "1,2.5,3",
        "1,0.5],[2,1",
        "1,[0.5]",
        "1.0,true",
        "1,100.5",
        "a,b",
        "1,\u0661",
        "1,12345678901234567890123",
        "1,1234567890",
    ],
)
def test_what_is_no_packed_mask(text: str) -> None:
    with pytest.raises(BadRequest, match=r"sampling\.logit_bias"):
        unpack(text)


def test_floats_are_the_same_as_their_mapping() -> None:
    mask = np.linspace(-100, 100, VOCABULARY, dtype="<f4") * (np.arange(VOCABULARY) % 3 > 0)
    fields = finish(pack_mask(msgspec.json.encode(mask.tobytes()), frozenset()))
    assert fields == {"packed_floats": b64encode(mask.tobytes()).decode()}
    bias = unpack_floats(fields["packed_floats"])
    bias.check(VOCABULARY)
    assert added(bias) == [float(each) for each in mask]
    with pytest.raises(BadRequest, match=f"the mask has {VOCABULARY} numbers, and this model 4097 tokens"):
        bias.check(VOCABULARY + 1)


def test_a_mask_of_floats_that_changes_nothing() -> None:
    bias = unpack_floats(b64encode(bytes(4 * VOCABULARY)).decode())
    bias.check(VOCABULARY)
    assert not any(added(bias))


@pytest.mark.parametrize(
    "text", ['"AAA"', '"\\u00e9AAA"', '"AAAA AAAA"', '"$$$$"', '"AAAA\\n"', '""', '"AAAAAAA="', '"AAAA"']
)
def test_what_is_no_base64_of_floats(text: str) -> None:
    with pytest.raises(BadRequest, match=r"^logit_bias: .*32-bit float"):
        finish(pack_mask(text.encode(), frozenset()))


@pytest.mark.parametrize(
    "text", ["$$$$$w==", "AAAA AA=", "AAAA\nAA=", "A=AAAA==", "AAAAA===", "AAAAAAAA----AAAA", "AAAAAA"]
)
def test_what_has_the_size_of_floats_and_is_no_base64_is_refused_where_it_is_read(text: str) -> None:
    with pytest.raises(BadRequest, match=r"^sampling\.logit_bias: .*32-bit float"):
        unpack_floats(text)


def test_base64_with_escapes_of_json() -> None:
    floats = struct.pack("<2f", -1.9999999, 0.5)
    text = b64encode(floats).decode()
    assert "/" in text
    escaped = json.dumps(text).replace("/", "\\/").encode()
    assert finish(pack_mask(escaped, frozenset())) == {"packed_floats": text}


@pytest.mark.parametrize("wrong", [b"", b"abc", b"abcde"])
def test_bytes_that_are_no_floats(wrong: bytes) -> None:
    with pytest.raises(BadRequest, match="no 32-bit floats"):
        unpack_floats(b64encode(wrong).decode())


@pytest.mark.parametrize("wrong", [100.5, -101, float("nan"), float("inf"), -float("inf")])
def test_floats_out_of_range(wrong: float) -> None:
    with pytest.raises(BadRequest, match="from -100 to 100"):
        unpack_floats(b64encode(np.array([0, wrong, 1], dtype="<f4").tobytes()).decode())


@settings(max_examples=60)
@given(st.text("0123456789,-", max_size=40) | st.from_regex(PAIRS, fullmatch=True))
def test_any_text_is_read_as_pairs_or_refused(text: str) -> None:
    numbers = [int(each) for each in text.split(",")] if PAIRS.fullmatch(text) else []
    mask: dict[int, Any] = dict(zip(numbers[::2], numbers[1::2], strict=True))
    try:
        bias = unpack(text)
        bias.check(VOCABULARY)
    except BadRequest:
        assert not mask or max(map(abs, numbers[1::2])) > 100 or max(mask) >= VOCABULARY or text.startswith("-")
    else:
        assert added(bias) == added(LogitBias.of(mask))


MANY = range(0, 160_000, 2)


@pytest.mark.parametrize(
    ("work", "least"),
    [
        (pack_bias(json.dumps(dict.fromkeys(map(str, MANY), 100)).encode()), 4),
        (LogitBias.unpack(",".join(f"{number},100" for number in MANY)), 8),
        (LogitBias.unpack(",".join(f"{number},{number % 100}" for number in MANY)), 5),
        (LogitBias.unpack(",".join(f"{number},0.5" for number in MANY)), 5),
        (LogitBias.unpack(",".join(f"{number},5e-1" for number in MANY)), 10),
        (LogitBias.unpack_floats(b64encode(bytes(4 * 160_000)).decode()), 2),
    ],
)
def test_a_megabyte_is_read_in_steps(work: Steps[object], least: int) -> None:
    assert sum(1 for _ in work) >= least


def test_floats_travel_as_bytes_do() -> None:
    class Older(msgspec.Struct, omit_defaults=True):
        packed_floats: bytes | None = None

    floats = struct.pack("<2f", -1.9999999, 0.5)
    data = msgspec.json.encode(Sampling(packed_floats=b64encode(floats).decode()))
    assert data == msgspec.json.encode(Older(floats))
    assert decode(Older, data).packed_floats == floats


ENTRIES = st.tuples(st.integers(0, VOCABULARY - 1), st.integers(-100, 100) | st.floats(-100, 100))


@settings(max_examples=60)
@given(st.lists(ENTRIES, min_size=1), st.integers(1, 30))
def test_parts_give_what_the_whole_gives(entries: list[tuple[int, float]], size: int) -> None:
    text = ",".join(f"{token},{bias}" for token, bias in entries)
    assert added(finish(LogitBias.unpack(text, size))) == added(LogitBias.of(dict(entries)))
    for wrong in (f"{text},", f",{text}", f"{text},1", text.replace(",", ",,", 1)):
        with pytest.raises(BadRequest, match=r"sampling\.logit_bias"):
            finish(LogitBias.unpack(wrong, size))


def test_what_a_packed_mask_needs() -> None:
    assert Sampling(packed_bias="1,2").features == {"logit_bias", "packed_bias"}
    assert Sampling(packed_bias="1,2E0").features == {"logit_bias", "packed_bias", "packed_floats"}
    assert Sampling(packed_floats="AAAAAA==").features == {"logit_bias", "packed_floats"}
    assert Sampling(logit_bias={1: 2}).features == {"logit_bias"}


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**40, -(2**40), 2**63, -(2**64)])
def test_tokens_that_the_model_does_not_have(token: int) -> None:
    with pytest.raises(BadRequest, match="token ids are 0 to 4095"):
        LogitBias.of({5: 1.0, token: 1.0}).check(VOCABULARY)
