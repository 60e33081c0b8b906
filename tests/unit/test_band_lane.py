"""What one gateway holds of a model's band: beyond its bounds nothing more is taken."""

import pytest

from tg_base.protocol import Route
from tg_gateway.relay.band_lane import PAUSED_TASK_BYTES, BandLane
from tg_schema import TEXT_COMPLETION

MOST = 1_000_000


@pytest.mark.parametrize(("size", "full"), [(MOST - PAUSED_TASK_BYTES, True), (1000, False)])
async def test_what_pauses_is_bounded_in_bytes(size: int, full: bool) -> None:
    lane = BandLane(Route("f", TEXT_COMPLETION, "request", "response"), "band", 30.0, MOST)
    with lane.count_paused(size):
        # Those behind their pause may begin all the same: else nobody would ever leave.
        assert (lane.is_full, lane.is_open) == (full, True)
    assert (lane.is_full, lane.paused) == (False, 0)
