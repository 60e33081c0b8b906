"""Where the names of a pool's models lead, and what chance decides there."""

from random import Random

import pytest

from tg_picker.core import AdapterReport, Endpoint, LoadReport, Objective, Scheduler
from tg_picker.pools import Catalogue, Destination, PoolView, Slo, UseCase, find_goal
from tg_picker.pools import Pool as ServerPool
from tg_picker.provider.order import find_destination
from tg_schema.errors import NotFound

ONE = {"p": ServerPool("p", {}, ())}
HALVES = (("a", 1), ("b", 1))
PROMISE = Slo("TimeToFirstToken", 0.5, 0.9)
CASE = UseCase("r", (("p", 1),), slos=(PROMISE,))
ANY = PoolView(Catalogue(ONE))


DRAW = Random(0)


def find(view: PoolView, adapter: str | None, scheduler: Scheduler | None = None) -> Destination:
    return find_destination(view, "m", adapter, DRAW, scheduler or Scheduler())


def test_a_place_is_as_the_pools_are_now() -> None:
    assert find(ANY, None) == Destination("p", "m")
    assert ANY.find_base(find(ANY, None)) == "m"
    edited = PoolView(Catalogue(ONE, cases={"m": CASE}))
    found = find(edited, None)
    assert found == Destination("p", "m", slos=(PROMISE,), route="r")
    assert (find_goal(found.slos), edited.find_base(found)) == (Objective(0.5, None, 0.9, 0.9), "m")


@pytest.mark.parametrize(
    "catalogue",
    [
        Catalogue(ONE, rewrites={("p", "m"): HALVES}),
        Catalogue(ONE, defaults={"p": HALVES}),
        Catalogue({"a": ONE["p"], "b": ONE["p"]}, rewrites={(pool, "m"): (("m", 1),) for pool in "ab"}),
        Catalogue({"a": ONE["p"], "b": ONE["p"]}, cases={"m": UseCase("r", HALVES)}),
    ],
)
def test_chance_is_asked_each_time(catalogue: Catalogue) -> None:
    view = PoolView(catalogue)
    assert len({find(view, None) for _ in range(100)}) == 2


def test_names_of_adapters_are_told_apart() -> None:
    view = PoolView(Catalogue(ONE), {"p": (Endpoint("a:1", models=("base",)),)}, {"p": frozenset({"base"})})
    without = PoolView(Catalogue(ONE))
    for name in ("x1", "x2"):
        assert find(without, name) == Destination("p", name, name)
    assert view.find_base(find(view, "x")) == "base"
    with pytest.raises(NotFound, match="no route leads to the adapter of this request; known are known"):
        find(PoolView(Catalogue({"p": ONE["p"]}, cases={"known": CASE})), "x")


@pytest.mark.parametrize(
    "catalogue",
    [
        Catalogue(ONE, rewrites={("p", "chat"): (("llama", 1),)}),
        Catalogue(ONE, cases={"chat": CASE}, rewrites={("p", "chat"): (("llama", 1),)}),
        Catalogue(ONE, cases={"chat": CASE, "llama": CASE}, rewrites={("p", "chat"): (("llama", 1),)}),
    ],
    ids=["rewrite", "table", "both"],
)
def test_a_name_of_a_model_is_no_adapter_unless_a_server_tells_it(catalogue: Catalogue) -> None:
    """The servers tell no base models. Every request names what it asks for as an adapter would be named."""
    server, scheduler = Endpoint("a:1"), Scheduler()
    view = PoolView(catalogue, {"p": (server,)})
    place = find(view, "chat", scheduler)
    assert (place.model, place.adapter, view.find_base(place)) == ("llama", None, "llama")
    scheduler.observe(server, LoadReport(1.0, adapters=AdapterReport(active=frozenset({"llama"}))))
    place = find(view, "chat", scheduler)
    assert (place.adapter, view.find_base(place)) == ("llama", "")


def test_an_adapter_of_a_route_stays_one_where_it_is_rewritten() -> None:
    route = UseCase("r", (("p", 1),), is_adapter=True)
    catalogue = Catalogue(ONE, cases={"sentiment": route}, rewrites={("p", "sentiment"): (("sentiment-v1", 1),)})
    view = PoolView(catalogue, {"p": (Endpoint("a:1"),)})
    assert find(view, "sentiment").adapter == "sentiment-v1"
