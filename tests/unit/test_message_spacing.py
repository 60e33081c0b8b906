"""How far apart a link's messages are: a table of situations, and the rules behind it."""

from itertools import pairwise

import pytest

from bench.link_messages import Load, in_virtual_time
from tg_base.protocol.message_spacing import (
    BURST_MESSAGES,
    HALF_LIFE_SECONDS,
    KEPT_UP_MESSAGES,
    MAX_SPACING_SECONDS,
    MESSAGES_PER_SECOND,
    SPACING_SECONDS,
    WINDOW_SECONDS,
    FairSpacing,
    MessageSpacing,
    share,
)

LEAST, MOST = SPACING_SECONDS, MAX_SPACING_SECONDS
ALL = MESSAGES_PER_SECOND


def departures(arrivals: list[float], *, wanted: float = 0.0, unacknowledged: int = 0) -> list[float]:
    """When messages leave, if one is wanted at each of these times."""
    spacing, left, now = MessageSpacing(), [], 0.0
    spacing.wanted = wanted
    for arrival in arrivals:
        now = max(now, arrival)
        now += max(spacing.wait(now), 0.0)
        spacing.note_sent(1, unacknowledged, now)
        left.append(now)
    return left


@pytest.mark.parametrize("gap", [LEAST, 2 * LEAST, 10 * LEAST, 1.0])
def test_a_lone_stream_never_waits(gap: float) -> None:
    arrivals = [number * gap for number in range(100)]
    assert departures(arrivals) == pytest.approx(arrivals)


def test_few_that_come_together_never_wait() -> None:
    arrivals = [0.0] * BURST_MESSAGES + [10 * LEAST] * BURST_MESSAGES
    assert departures(arrivals) == pytest.approx(arrivals)


@pytest.mark.parametrize(
    ("wanted", "unacknowledged", "apart"),
    [
        pytest.param(0.0, 0, LEAST, id="alone"),
        pytest.param(LEAST / 2, 0, LEAST, id="a reader that asks for less"),
        pytest.param(2 * LEAST, 0, 2 * LEAST, id="one of two busy links"),
        pytest.param(1.0, 0, MOST, id="one of a thousand"),
        pytest.param(0.0, KEPT_UP_MESSAGES, LEAST, id="a reader that keeps up"),
        pytest.param(0.0, 2 * KEPT_UP_MESSAGES, 2 * LEAST, id="a reader that lags"),
        pytest.param(2 * LEAST, 2 * KEPT_UP_MESSAGES, 4 * LEAST, id="one that lags, of two links"),
        pytest.param(0.0, 256, 4 * LEAST, id="a reader that is stuck"),
        pytest.param(4 * LEAST, 256, MOST, id="one that is stuck, of four links"),
    ],
)
def test_under_load_messages_are_so_far_apart(wanted: float, unacknowledged: int, apart: float) -> None:
    left = departures([0.0] * 100, wanted=wanted, unacknowledged=unacknowledged)
    assert [after - before for before, after in pairwise(left[50:])] == pytest.approx([apart] * 49)


def test_a_timer_that_is_late_makes_no_fewer_messages() -> None:
    spacing, now, sent = MessageSpacing(), 0.0, 0
    while now < 1000 * LEAST:
        if (wait := spacing.wait(now)) > 0:
            now += wait + 0.3 * LEAST
        spacing.note_sent(1, 0, now)
        sent += 1
    assert sent == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize(
    ("rates", "seconds"),
    [
        pytest.param([], LEAST, id="no link"),
        pytest.param([ALL / 10], LEAST, id="one calm link"),
        pytest.param([ALL * 10], LEAST, id="one busy link"),
        pytest.param([ALL / 20] * 10, LEAST, id="many calm links"),
        pytest.param([ALL * 2] * 4, 4 * LEAST, id="four busy links"),
        pytest.param([ALL / 2, ALL * 2], 2 * LEAST, id="half is what a link has at most"),
        pytest.param([ALL / 10, ALL * 2, ALL * 3], 2 / 0.9 * LEAST, id="two busy ones beside a calm one"),
        pytest.param([ALL] * 1000, MOST, id="a thousand busy links"),
    ],
)
def test_links_share_the_messages_of_a_process(rates: list[float], seconds: float) -> None:
    assert share(rates) == pytest.approx(seconds)
    assert share(reversed(rates)) == share(rates)


def test_shares_grow_at_once_with_what_the_links_have() -> None:
    fair, busy = FairSpacing(), int(WINDOW_SECONDS * ALL)
    assert fair.update([("a", busy), ("b", busy)], 0.0) == LEAST
    assert fair.update([("a", 3 * busy), ("b", 3 * busy)], WINDOW_SECONDS / 2) == LEAST
    assert fair.update([("a", 3 * busy), ("b", 3 * busy)], WINDOW_SECONDS) == pytest.approx(2 * LEAST)


def test_shares_that_are_not_needed_any_more_halve_in_time() -> None:
    fair, busy = FairSpacing(), int(WINDOW_SECONDS * ALL)
    links = [(str(link), busy) for link in range(4)]
    fair.update([], 0.0)
    assert fair.update(links, WINDOW_SECONDS) == pytest.approx(4 * LEAST)
    assert fair.update(links, WINDOW_SECONDS + HALF_LIFE_SECONDS) == pytest.approx(2 * LEAST)
    assert fair.update(links, WINDOW_SECONDS + 10 * HALF_LIFE_SECONDS) == LEAST


def test_the_real_links_of_an_inbox_share_soon_after_their_first_chunks() -> None:
    """In virtual time: four busy links have 4,000 messages a second until they share."""
    first = in_virtual_time(Load(4, 64), seconds=1, warm_up=0)
    assert first.messages < 2 * ALL


def test_the_real_links_of_an_inbox_keep_to_it() -> None:
    """In virtual time, over a bus that takes 1 ms: a message's way is all that a lone chunk waits for."""
    lone, shared = in_virtual_time(Load(1, 1), seconds=1), in_virtual_time(Load(4, 32), seconds=1)
    assert lone.p99 == pytest.approx(1.0)
    assert shared.messages == pytest.approx(ALL, rel=0.02)
    assert shared.p99 <= 1.0 + 1000 * MOST
