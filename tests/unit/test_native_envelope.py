"""The id of a large message, which is refused without being read."""

import pytest

from tg_base.runtime import MAX_QUICK_BYTES
from tg_gateway.dialects.native import envelope

LARGE = b"x" * MAX_QUICK_BYTES


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (b'{"id":"a","request":"%b' % LARGE, "a"),
        (b' { "id" : 7 , "request":"%b"}' % LARGE, 7),
        (b'{"id":"\\"\\u00e9","request":%b' % LARGE, '"\u00e9'),
        (b'{"request":"%b","id":"a"}' % LARGE, "a"),
        (b'{"request":"%b", "id" : -7 } \n' % LARGE, -7),
        (b'{"request":"%b","id":"a"}}' % LARGE, None),
        (b'{"service":"x","id":"a","request":"%b"}' % LARGE, None),
        (b'{"id":true,"request":"%b"}' % LARGE, None),
        (b'{"id":"%b"}' % LARGE, None),
        (b'{"id":"\xff","request":"%b"}' % LARGE, None),
        (LARGE + b'"id":"a"}', None),
    ],
)
def test_an_id_that_comes_first_or_last_is_found(message: bytes, name: str | int | None) -> None:
    assert envelope.id_of(message) == name
