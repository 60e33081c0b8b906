"""Signs counted against a limit: the same whether the text is counted or gone through from sign to sign."""

import pytest

from tg_schema.occurrences import MIN_LARGE_BYTES, has_more_of


@pytest.mark.parametrize("size", [64, MIN_LARGE_BYTES - 1, MIN_LARGE_BYTES, MIN_LARGE_BYTES + 1])
@pytest.mark.parametrize(("squares", "curls"), [(0, 0), (1, 0), (0, 1), (5, 3), (31, 32)])
def test_the_limit_is_exact(size: int, squares: int, curls: int) -> None:
    signs = b"{[" * min(squares, curls) + b"[" * max(squares - curls, 0) + b"{" * max(curls - squares, 0)
    half = len(signs) // 2
    # At both ends, so that the first and the last byte are looked at too.
    data = signs[:half] + b"x" * (size - len(signs)) + signs[half:]
    count = squares + curls
    assert not has_more_of((b"[", b"{"), data, count)
    assert not count or has_more_of((b"[", b"{"), data, count - 1)
    assert not squares or has_more_of((b"[",), data, squares - 1)
    assert not has_more_of((b"[",), data, squares)
