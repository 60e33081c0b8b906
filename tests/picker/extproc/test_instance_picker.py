"""The picker against clients and servers that leave, lie and send what nobody sends: nothing stays counted."""

import asyncio
from random import Random

import msgspec
import pytest
import structlog
from msgspec.structs import replace

from tests.picker.core.test_accounting import NOTHING, counters
from tests.picker.extproc.scripted_picker import ScriptedPicker
from tests.picker.extproc.test_exchange import BODY, body, headers, response, response_headers
from tests.picker.page.shown_pool import PartlyReachable, make_picker
from tg_base.llm import HttpAnswer
from tg_picker.core import (
    AdapterReport,
    Endpoint,
    InstanceUsage,
    LoadReport,
    Objective,
    Scheduler,
)
from tg_picker.extproc import wire
from tg_picker.extproc.decision import Asked, Directed, Refused
from tg_picker.extproc.exchange import Exchange
from tg_picker.extproc.instance_picker import MAX_LOGGED, InstancePicker
from tg_picker.extproc.placement_course import PlacementCourse
from tg_picker.pools import Catalogue, Pool, PoolView, Slo, UseCase, find_goal
from tg_picker.pools.catalogue import FailurePolicy

SERVERS = tuple(Endpoint(f"10.0.0.{at}:8000", f"s{at}") for at in range(3))
NO_REWRITES: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {}
NO_CASES: dict[str, UseCase] = {}
ENDINGS = 2_000


def picker(
    scheduler: Scheduler,
    unreachable: frozenset[str] = frozenset(),
    cases: dict[str, UseCase] = NO_CASES,
    rewrites: dict[tuple[str, str], tuple[tuple[str, int], ...]] = NO_REWRITES,
    models: tuple[str, ...] = (),
) -> InstancePicker:
    """One of a pool of three servers that have any model, or these base models."""
    servers = tuple(replace(each, models=models) for each in SERVERS) if models else SERVERS
    served = {"p": frozenset(models)}
    view = PoolView(Catalogue({"p": Pool("p", {}, ())}, cases, rewrites=rewrites), {"p": servers}, served)
    ticks = iter(range(1_000_000))

    def clock() -> float:
        return next(ticks) / 100

    return InstancePicker(make_picker(PartlyReachable(scheduler, view, unreachable), clock), fallbacks=2)


def served(address: str) -> wire.ProcessingRequest:
    """The head of a response, of whoever says that it is this address."""
    message = response_headers()
    message.attributes["envoy.filters.http.ext_proc"].update({"upstream.address": address})
    return message


def messages(draw: Random) -> list[wire.ProcessingRequest]:
    """One request and its response as Envoy may send them, cut off anywhere; now and then a message comes twice."""
    usage = b'{"usage":{"completion_tokens":%d}}' % draw.choice([7, -1, 10**30, 10**400])
    whole = [headers(), body(BODY[:9], end=False), body(BODY[9:]), served(f"10.0.0.{draw.randrange(5)}:8000")]
    whole += [response(usage[:5], end=False), response(usage[5:], end=True)]
    whole = [headers(end=True), *whole[3:]] if draw.random() < 0.3 else whole
    cut = whole[: draw.randint(0, len(whole))]
    if cut and draw.random() < 0.3:
        cut.insert(draw.randrange(len(cut)), draw.choice(cut))
    return cut


async def test_however_requests_end_nothing_stays_counted() -> None:
    scheduler, draw = Scheduler(random=Random(1)), Random(2)
    asked = picker(scheduler)
    for _ in range(ENDINGS):
        exchange = Exchange(asked)
        for message in messages(draw):
            await exchange.take(message)
        exchange.close()
    assert [counters(scheduler.server(each)) for each in SERVERS] == [NOTHING] * 3


async def test_a_server_that_nobody_can_reach_is_picked_only_if_there_is_no_other() -> None:
    dead = frozenset(each.address for each in SERVERS[:2])
    asked = picker(Scheduler("round-robin"), dead)
    for _ in range(4):
        directed = await asked.decide(Asked({}, BODY))
        assert isinstance(directed, Directed)
        assert directed.addresses == (SERVERS[2].address,)
    alone = await asked.decide(Asked({}, BODY, frozenset([SERVERS[0].address])))
    assert isinstance(alone, Directed)
    assert alone.addresses == (SERVERS[0].address,)


async def test_a_route_may_say_how_many_servers_are_named() -> None:
    case = UseCase("r", (("p", 1),), failure=FailurePolicy(max_attempts=2))
    directed = await picker(Scheduler(), cases={"m": case}).decide(Asked({}, BODY))
    assert isinstance(directed, Directed)
    assert len(directed.addresses) == 2


async def test_fallbacks_are_of_the_subset_as_well() -> None:
    asked = picker(Scheduler("round-robin"))
    subset = frozenset(each.address for each in SERVERS[:2])
    for _ in range(4):
        directed = await asked.decide(Asked({}, BODY, subset | {"10.9.9.9:1"}))
        assert isinstance(directed, Directed)
        assert sorted(directed.addresses) == sorted(subset)
    refused = await asked.decide(Asked({}, BODY, frozenset(["10.9.9.9:1"])))
    assert isinstance(refused, Refused)
    assert refused.status == 503


async def test_all_servers_that_were_asked_before_the_one_that_answered_are_passed_over() -> None:
    asked = picker(Scheduler("round-robin"), cases={"a": UseCase("a", (("p", 1),), is_adapter=True)})
    question = Asked({}, b'{"model": "a", "messages": []}')
    first = await asked.decide(question)
    assert isinstance(first, Directed)
    first.course.served(first.addresses[2])
    for _ in range(4):
        directed = await asked.decide(question)
        assert isinstance(directed, Directed)
        assert directed.addresses[0] == first.addresses[2]


@pytest.mark.parametrize("models", [("base",), ("base", "other")])
async def test_where_the_base_models_are_known_adapters_and_requests_without_a_model_find_a_server(
    models: tuple[str, ...],
) -> None:
    asked = picker(Scheduler(), cases={"a": UseCase("a", (("p", 1),), is_adapter=True)}, models=models)
    for sent in (b'{"model": "a", "messages": []}', b'{"model": "base"}', None):
        assert isinstance(await asked.decide(Asked({}, sent)), Directed), sent
    unknown = await asked.decide(Asked({}, b'{"model": "b"}'))
    assert isinstance(unknown, Refused)
    assert unknown.status == 404


@pytest.mark.parametrize("models", [(), ("base",)])
async def test_an_adapter_without_a_route_goes_where_a_server_tells_that_it_has_it(models: tuple[str, ...]) -> None:
    scheduler = Scheduler(random=Random(1))
    asked = picker(scheduler, models=models)
    question = Asked({}, b'{"model": "polite"}')
    scheduler.observe(SERVERS[1], LoadReport(0.0, adapters=AdapterReport(resident={"polite": "gpu"})))
    for _ in range(9):
        directed = await asked.decide(question)
        assert isinstance(directed, Directed)
        assert directed.addresses[0] == SERVERS[1].address
        directed.course.end(None)
    # A route says which adapters are admitted, where there is one.
    routed = picker(scheduler, cases={"a": UseCase("a", (("p", 1),), is_adapter=True)}, models=models)
    assert isinstance(await routed.decide(question), Refused)
    scheduler.retain(SERVERS[:1])
    left = await asked.decide(question)
    assert isinstance(left, Refused if models else Directed)


async def test_a_request_that_leaves_while_its_adapter_is_loaded_is_released_and_recorded() -> None:
    scheduler, began = Scheduler(), asyncio.Event()

    async def post(*_: object) -> HttpAnswer:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    view = PoolView(Catalogue({"p": Pool("p", {}, ())}, {"a": UseCase("a", (("p", 1),), True)}), {"p": SERVERS})
    picking = make_picker(PartlyReachable(scheduler, view), lambda: 0.0, adapter_source="/srv/{adapter}")
    asked = asyncio.create_task(InstancePicker(picking, post=post).decide(Asked({}, b'{"model": "a"}')))
    await began.wait()
    asked.cancel()
    await asyncio.wait([asked])
    assert [counters(scheduler.server(each)) for each in SERVERS] == [NOTHING] * 3
    assert [record.outcome for record in picking.board.decisions] == ["ended early"]


async def test_a_decision_whose_answer_cannot_be_written_is_released() -> None:
    scripted = ScriptedPicker()
    scripted.addresses = ("\ud800",)
    exchange = Exchange(scripted)
    with pytest.raises(UnicodeEncodeError):
        await exchange.take(headers(end=True))
    exchange.close()
    assert scripted.courses[0].told == [None]


@pytest.mark.parametrize("text", ["00000001" + "0" * 400, "9" * 5000, "3600001", "-1", "1e3", "\u0661", ""])
async def test_a_promise_that_is_no_number_counts_for_nothing(text: str) -> None:
    asked = picker(Scheduler())
    assert isinstance(await asked.decide(Asked({"x-slo-ttft-ms": text}, BODY)), Directed)


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=b", "audio/wav", "Application/Octet-Stream"])
async def test_a_body_that_says_it_is_no_json_goes_to_any_server(kind: str) -> None:
    directed = await picker(Scheduler()).decide(Asked({"content-type": kind}, b"--b\r\n"))
    assert isinstance(directed, Directed)
    assert directed.body is None
    directed.course.end(None)
    refused = await picker(Scheduler()).decide(Asked({"content-type": "application/json"}, b"--b\r\n"))
    assert isinstance(refused, Refused)


async def test_a_request_may_promise_itself_less_than_its_route_and_keeps_the_route_s_share() -> None:
    slos = (Slo("OutputTokenLatency", 0.2, 0.9),)
    assert find_goal(slos, output_token=0.5) == Objective(None, 0.5, 0.9, 0.9)
    assert find_goal(slos, first_token=2.0) == Objective(2.0, 0.2, 0.9, 0.9)
    assert find_goal(()) is None


async def test_a_body_that_cannot_be_renamed_is_refused() -> None:
    refused = await picker(Scheduler(), rewrites={("p", "old"): (("new", 1),)}).decide(
        Asked({}, b'{"model":"old","\xff":1}')
    )
    assert isinstance(refused, Refused)
    assert refused.status == 400


async def test_a_name_of_a_megabyte_is_logged_by_its_beginning() -> None:
    scheduler = Scheduler()
    asked = Asked({"x-request-id": "r" * 1_000_000}, msgspec.json.encode({"model": "m" * 1_000_000}))
    with structlog.testing.capture_logs() as logs:
        assert isinstance(await picker(scheduler).decide(asked), Directed)
        assert isinstance(await picker(scheduler).decide(Asked({}, asked.body, frozenset())), Refused)
    assert [entry["event"] for entry in logs] == ["pick", "pick.refused"]
    assert all(len(str(value)) <= MAX_LOGGED for entry in logs for value in entry.values())


@pytest.mark.parametrize(
    ("streamed", "unread", "status", "seen"),
    [
        (True, False, 200, (True, "answered")),
        (False, False, 200, (False, "answered")),
        (True, True, 200, (False, "answered")),
        (True, False, 429, (False, "status 429")),
        (True, True, 429, (False, "status 429")),
    ],
)
async def test_only_a_streamed_answer_that_is_read_has_a_first_token(
    streamed: bool, unread: bool, status: int, seen: tuple[bool, str]
) -> None:
    told = b'{"model":"m","stream":%s}' % str(streamed).lower().encode()
    directed = await picker(Scheduler()).decide(Asked({}, told, is_unread=unread))
    assert isinstance(directed, Directed)
    course = directed.course
    assert isinstance(course, PlacementCourse)
    course.respond(status, "")
    course.begin()
    course.end(InstanceUsage(output_tokens=5))
    placement, record = course._pick.placement, course._record
    assert (placement.first_at is not None, record.outcome) == seen
    assert (record.first_token_seconds is not None) is seen[0]
