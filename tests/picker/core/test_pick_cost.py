"""What a pick costs in a large pool, in calls of functions. `python -m bench.instances --picks` has its time."""

import sys
from types import FrameType

from bench.instances.picks import measure_policy
from tg_picker.core import Scheduler

MAX_CALLS = 600
"""About six for each of a hundred servers: 550 when this was written, by Python 3.11."""


def test_a_pick_among_a_hundred_servers_makes_few_calls() -> None:
    picks = calls = depth = 0
    code = Scheduler.pick.__code__

    def count_calls(frame: FrameType, event: str, _: object) -> None:
        nonlocal picks, calls, depth
        is_pick = frame.f_code is code
        if event == "call" and is_pick:
            picks, depth = picks + 1, depth + 1
        elif event == "return" and is_pick:
            depth -= 1
        elif depth and event in {"call", "c_call"}:
            calls += 1

    sys.setprofile(count_calls)
    try:
        measure_policy("predicted-wait", 400)
    finally:
        sys.setprofile(None)
    assert picks == 400
    assert calls / picks <= MAX_CALLS
