"""Reports of load -> how full servers are, and what that admits."""

from random import Random
from typing import get_args

from msgspec.structs import replace

from bench.instances.baselines.policies import make_policy
from tests.picker.core.cases import endpoint, request, server, told
from tg_picker.core import (
    LoadReport,
    Pick,
    Rejection,
    Scheduler,
)
from tg_picker.core.policies.admission import ADMISSIONS, AdmissionRule, saturation

LOW = request("x", priority=-1)


def fullness(now: float = 0.0, *reports: LoadReport | None) -> float:
    return saturation([server("a", report) for report in reports], now)


def test_saturation_is_the_mean_of_the_fuller_one() -> None:
    assert fullness(0.0, told(5, 0.0), told(0, 0.8)) == 1.0
    assert fullness(0.0, told(1, 0.4), told(0, 0.0)) == 0.25
    assert fullness(0.21, told(0, 0.0), told(0, 0.0)) == 1.0
    assert fullness(9.0, None) == 0.0
    # A server that is looked at once in a second is as fresh after 4 s as another one after 0.2 s.
    slow = [replace(told(0, 0.0), interval=1.0)] * 2
    assert fullness(3.9, *slow) == 0.0
    assert fullness(4.1, *slow) == 1.0


def test_a_report_stays_as_long_as_its_server_s_looks_take() -> None:
    place, scheduler = endpoint("a"), Scheduler("least-request")
    for interval, kept in ((0.05, False), (1.0, True)):
        scheduler.observe(place, replace(told(3, 0.0), interval=interval))
        scheduler.expire(3.0)
        assert (scheduler.server(place).report is not None) is kept


def admitted(admission: str, queued: int, priority: int, times: int = 200) -> int:
    """How many of so many requests are admitted by one server with this queue."""
    place = endpoint("a")
    scheduler = Scheduler(make_policy("random"), admission, random=Random(1))
    scheduler.observe(place, told(queued, 0.0))
    made = [scheduler.pick(request(priority=priority), [place], 0.0) for _ in range(times)]
    assert {each for each in made if isinstance(each, Rejection)} <= {Rejection("saturated", 429, 1.0)}
    return sum(isinstance(each, Pick) for each in made)


def test_every_rule_can_be_named() -> None:
    assert tuple(ADMISSIONS) == get_args(AdmissionRule)


def test_threshold_admission() -> None:
    assert [admitted("threshold", queued, -1, 1) for queued in (0, 4, 5)] == [1, 1, 0]
    assert admitted("threshold", 99, 0, 1) == 1


def test_probabilistic_admission() -> None:
    """300 * 0.2 ** 5 = 0.096 at a queue of 1; 1 from 0.32 on."""
    assert admitted("probabilistic", 0, -1) == 200
    assert 165 <= admitted("probabilistic", 1, -1) <= 195
    assert admitted("probabilistic", 2, -1) == 0
    assert admitted("probabilistic", 99, 0) == 200
    assert admitted("always", 99, -1) == 200
