"""When a burst counts as over, so that its memory is given back; and that the C library can give it back here."""

import pytest

from tg_base.server.memory_return import RestWatch, find_trim


@pytest.mark.parametrize(
    ("looks", "over"),
    [
        ([20, 4096, 8000, 30, 30], [3]),
        ([20, 300, 20], []),
        # Half of it still runs, or too many do for a collection beside them.
        ([900, 520, 400, 390], [2]),
        ([12_000, 5_000, 1_001, 1_000], [3]),
        # Each burst once; what was left of one counts for the next.
        ([600, 50, 60, 700, 40], [1, 4]),
    ],
)
def test_a_burst_is_over_once(looks: list[int], over: list[int]) -> None:
    watch = RestWatch()
    assert [number for number, tasks in enumerate(looks) if watch.is_over(tasks)] == over


def test_the_c_library_gives_memory_back() -> None:
    trim = find_trim()
    assert trim is None or trim() in (0, 1)
