"""Where the names of a pool's models lead: remembered while the pools stay, and drawn anew where chance decides."""

from random import Random

import pytest

from tg_picker.core import AdapterReport, Endpoint, LoadReport, Objective, Scheduler
from tg_picker.pools import Catalogue, Destination, PoolView, Slo, UseCase
from tg_picker.pools import Pool as ServerPool
from tg_picker.provider.places import MAX_PLACES, Place, Places
from tg_schema.errors import NotFound

ONE = {"p": ServerPool("p", {}, ())}
HALVES = (("a", 1), ("b", 1))
PROMISE = Slo("TimeToFirstToken", 0.5, 0.9)
CASE = UseCase("r", (("p", 1),), slos=(PROMISE,))
ANY = PoolView(Catalogue(ONE))


def places(scheduler: Scheduler | None = None) -> Places:
    return Places("m", Random(0), scheduler or Scheduler())


def test_a_place_is_found_once_until_the_pools_change() -> None:
    found = places()
    first = found.find(ANY, None)
    assert first == Place(Destination("p", "m"), None, "m")
    assert found.find(ANY, None) is first
    edited = PoolView(Catalogue(ONE, cases={"m": CASE}))
    assert found.find(edited, None) == Place(
        Destination("p", "m", slos=(PROMISE,), route="r"), Objective(0.5, None, 0.9, 0.9), "m"
    )
    assert found.find(ANY, None) == first


@pytest.mark.parametrize(
    "catalogue",
    [
        Catalogue(ONE, rewrites={("p", "m"): HALVES}),
        Catalogue(ONE, defaults={"p": HALVES}),
        Catalogue({"a": ONE["p"], "b": ONE["p"]}, homes={"m": HALVES}),
        Catalogue({"a": ONE["p"], "b": ONE["p"]}, cases={"m": UseCase("r", HALVES)}),
    ],
)
def test_chance_is_asked_each_time(catalogue: Catalogue) -> None:
    found, view = places(), PoolView(catalogue)
    assert not catalogue.is_certain
    assert len({found.find(view, None).destination for _ in range(100)}) == 2


def test_names_of_adapters_are_told_apart_and_bounded() -> None:
    found = places()
    view = PoolView(Catalogue(ONE), {"p": (Endpoint("a:1", models=("base",)),)}, {"p": frozenset({"base"})})
    without = PoolView(Catalogue(ONE))
    for number in range(3 * MAX_PLACES):
        place = found.find(without, f"x{number}")
        assert place.destination == Destination("p", f"x{number}", f"x{number}")
        assert len(found._kept) <= MAX_PLACES
    assert found.find(view, "x").base == "base"
    with pytest.raises(NotFound, match="the adapter"):
        found.find(PoolView(Catalogue({"p": ONE["p"]}, cases={"known": CASE})), "x")


@pytest.mark.parametrize(
    "catalogue",
    [
        Catalogue(ONE, homes={"chat": (("p", 1),)}, rewrites={("p", "chat"): (("llama", 1),)}),
        Catalogue(ONE, cases={"chat": CASE}, rewrites={("p", "chat"): (("llama", 1),)}),
        Catalogue(ONE, cases={"chat": CASE, "llama": CASE}, rewrites={("p", "chat"): (("llama", 1),)}),
    ],
    ids=["rewrite", "table", "both"],
)
def test_a_name_of_a_model_is_no_adapter_unless_a_server_tells_it(catalogue: Catalogue) -> None:
    """The servers tell no base models. Every request names what it asks for as an adapter would be named."""
    server, scheduler = Endpoint("a:1"), Scheduler()
    found, view = places(scheduler), PoolView(catalogue, {"p": (server,)})
    place = found.find(view, "chat")
    assert (place.destination.model, place.destination.adapter, place.base) == ("llama", None, "llama")
    scheduler.observe(server, LoadReport(1.0, adapters=AdapterReport(active=frozenset({"llama"}))))
    place = found.find(view, "chat")
    assert (place.destination.adapter, place.base) == ("llama", "")


def test_an_adapter_of_a_route_stays_one_where_it_is_rewritten() -> None:
    route = UseCase("r", (("p", 1),), is_adapter=True)
    catalogue = Catalogue(ONE, cases={"sentiment": route}, rewrites={("p", "sentiment"): (("sentiment-v1", 1),)})
    found, view = places(), PoolView(catalogue, {"p": (Endpoint("a:1"),)})
    assert found.find(view, "sentiment").destination.adapter == "sentiment-v1"
    assert found.find(view, "sentiment") is found.find(view, "sentiment")
