"""Numbers that are none, or have more digits than any type, and masks of them: as JSON, or what looks like it."""

import base64
import struct
from collections.abc import Iterator, Mapping
from typing import Final

NUMBERS: Final[Mapping[str, bytes]] = {
    "1e999": b"1e999",
    "400 digits": b"1" * 400,
    "10 to the power of 400": b"1" + b"0" * 400,
    "5000 digits": b"-" + b"9" * 5000,
    "5000 digits of a fraction": b"0." + b"3" * 5000,
    "a number near none": b"1e308",
    "a number near 0": b"1e-400",
    "-0": b"-0",
    "-0.0": b"-0.0",
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "2 to the power of 64": b"18446744073709551616",
    "an exponent of 5000 digits": b"1e" + b"9" * 5000,
    "a number in it that is none": b'{"a":[-1e999]}',
}
"""By name."""


def make_masks(size: int) -> Iterator[tuple[str, bytes]]:
    """A bias for each of some tokens."""
    for name, number in NUMBERS.items():
        yield f"a bias that is {name}", b'{"1":%b}' % number
        yield f"a token that is {name}", b'{"%b":1}' % number.replace(b'"', b"")
    yield "one token again and again", b"{%b}" % b",".join([b'"1":1'] * 1000 * size)
    yield "many tokens", b"{%b}" % b",".join(b'"%d":-100' % number for number in range(1000 * size))
    yield "no member", b"{%b}" % (b"," * 1000 * size)
    yield "nested", b'{"1":' * 100 * size + b"1" + b"}" * 100 * size
    for name, bias in (("NaN", float("nan")), ("infinity", float("-inf"))):
        yield f"packed {name}", b'"%b"' % base64.b64encode(struct.pack("<f", bias) * 100 * size)
    yield "packed, of another size", b'"%b"' % base64.b64encode(b"abc" * 100 * size)
    yield "packed, without letters", b'"%b"' % (b"=" * 400 * size)
