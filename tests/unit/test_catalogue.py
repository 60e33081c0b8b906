"""A model's name -> the flow that has it: its own name, aliases, adapters, and who is there now."""

import pytest

from tg_base.protocol import Presence, Route
from tg_gateway.dialects import Catalogue, FoundModel
from tg_gateway.dialects.catalogue import MAX_ANNOUNCED_MODELS, MAX_MODEL_CHARACTERS
from tg_schema import PROMPT, TEXT_COMPLETION
from tg_schema.errors import NotFound
from tg_schema.served_model import ServedModel

DEFAULT = Route("default", TEXT_COMPLETION, "q/default", "", model="small")
PROMPTS = Route("default", PROMPT, "q/prompt", "")
OTHER = Route("other", TEXT_COMPLETION, "q/other", "", model="big:8b")
TWIN = Route("twin", TEXT_COMPLETION, "q/twin", "", model="small")
UNBOUND = Route("unbound", TEXT_COMPLETION, "q/unbound", "")
PLAIN = Route("plain", TEXT_COMPLETION, "q/plain", "", plain=True, model="old")
ROUTES = (DEFAULT, PROMPTS, OTHER, TWIN, UNBOUND, PLAIN)
ALIASES = {"gpt": "small", "tuned": "big:8b:mine", "small": "old", "lost": "nobody"}


def catalogue(**models: str) -> Catalogue:
    """With a live processor of these flows' models."""
    live = {f"q/{flow}": [Presence("p", (f"q/{flow}",), 1, 0, (model,))] for flow, model in models.items()}
    return Catalogue(ROUTES, lambda queue: live.get(queue, []), ALIASES)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("small", FoundModel(DEFAULT, "small")),
        ("gpt", FoundModel(DEFAULT, "small")),
        ("big:8b", FoundModel(OTHER, "big:8b")),
        ("big:8b:lora", FoundModel(OTHER, "big:8b", "lora")),
        ("gpt:lora", FoundModel(DEFAULT, "small", "lora")),
        ("tuned", FoundModel(OTHER, "big:8b", "mine")),
        ("old", FoundModel(PLAIN, "old")),
        (None, FoundModel(DEFAULT, "small")),
        ("", FoundModel(DEFAULT, "small")),
        ("http://localhost:8888/", FoundModel(DEFAULT, "small")),
        ("https://models.example:443/v1/", FoundModel(DEFAULT, "small")),
    ],
)
def test_names(name: str | None, found: FoundModel) -> None:
    assert catalogue().find_model(name) == found


@pytest.mark.parametrize("name", ["none", "lost", "big", "small:", ":small", ":", "big:8b:a:b"])
def test_names_of_nobody(name: str) -> None:
    with pytest.raises(NotFound, match="there are: small, big:8b, old, gpt, tuned"):
        catalogue().find_model(name)


def test_what_leads_to_adapters_alone_lists_them_and_not_its_model() -> None:
    presence = Presence("p", ("q/other",), 1, 0, ("big:8b",), adapters={"mine": "/mine"}, adapters_only=True)
    known = Catalogue(ROUTES, lambda queue: [presence] if queue == "q/other" else [], ALIASES)
    assert (known.models(), [each.name for each in known.adapters()]) == (("old", "tuned"), ["mine"])
    for name in ("mine", "big:8b:mine", "tuned"):
        assert known.find_model(name).adapter == "mine"
    with pytest.raises(NotFound, match="there are: small, old, mine, gpt, tuned"):
        known.find_model("none")


def test_a_long_name_is_not_repeated_whole() -> None:
    with pytest.raises(NotFound) as refused:
        catalogue().find_model("x" * 1000)
    assert len(refused.value.message) < 200


def test_what_is_served_is_preferred() -> None:
    assert catalogue(twin="small").find_model("small").route == TWIN
    assert catalogue(twin="small", default="small").find_model("small").route == DEFAULT


def test_processors_say_what_the_configuration_does_not() -> None:
    assert catalogue(unbound="new").find_model("new:lora") == FoundModel(UNBOUND, "new", "lora", processors=1)


def test_adapters_are_asked_by_their_name_where_all_processors_have_them() -> None:
    both, first, second = ({name: f"{name}.gguf" for name in names} for names in ("xy", "xyz", ["x", "y", "small"]))
    served = [Presence(f"p{i}", ("q/other",), 1, 0, ("big:8b",), adapters=has) for i, has in enumerate((first, second))]
    live = {"q/other": served, "q/twin": [Presence("t", ("q/twin",), 1, 0, ("small",), adapters={"x": "twin.gguf"})]}
    them = Catalogue(ROUTES, lambda queue: live.get(queue, []), {"alias": "y"})
    assert {(each.name, each.base, each.root) for each in them.adapters()} == {
        (name, "big:8b", root) for name, root in both.items()
    }
    assert them.find_model("x") == FoundModel(OTHER, "big:8b", "x", processors=2)
    assert them.find_model("x", preferred="twin").model == "small"
    assert them.find_model("alias").adapter == "y"
    for unknown in ("z", "x:y"):
        with pytest.raises(NotFound):
            them.find_model(unknown)
    assert them.copy().find_model("y") == them.find_model("y")


def test_only_what_can_be_asked_now_is_listed() -> None:
    assert catalogue().models() == ("old",)
    assert catalogue(unbound="new", twin="small", other="big:8b").models() == (
        "big:8b",
        "small",
        "new",
        "old",
        "gpt",
        "tuned",
    )


@pytest.mark.parametrize(
    "served", [{}, {"default": "small"}, {"twin": "small", "other": "big:8b"}, {"unbound": "gpt", "other": "small"}]
)
def test_all_are_found_together_as_each_is_alone(served: dict[str, str]) -> None:
    known = catalogue(**served)
    assert list(known.find_served().items()) == [(name, known.find_model(name)) for name in known.models()]


def test_of_several_flows_with_a_model_one_can_be_preferred() -> None:
    assert catalogue(twin="small", default="small").find_model("small", "twin").route == TWIN
    assert catalogue(twin="small", default="small").find_model("gpt", "twin").route == TWIN
    assert catalogue(other="big:8b").find_model("big:8b", "twin").route == OTHER


def test_a_row_of_the_list_says_the_flow_the_features_and_what_an_alias_stands_for() -> None:
    live = {
        "q/default": [
            Presence("p", ("q/default",), 1, 0, ("small",), features=("json", "stop", "tools")),
            Presence("q", ("q/default",), 1, 0, ("small",), features=("stop", "json")),
        ]
    }
    rows = Catalogue(ROUTES, lambda queue: live.get(queue, []), ALIASES).served_models()
    assert rows == (
        ServedModel("small", "default", ("json", "stop")),
        ServedModel("old", "plain"),
        ServedModel("gpt", "default", ("json", "stop"), alias_of="small"),
    )


def announcing(**live: Presence) -> Catalogue:
    """With processors of these flows, which no file names, and one of `default`."""
    serving = {f"q/{flow}": [each] for flow, each in live.items()}
    routes = tuple(Route(flow, TEXT_COMPLETION, f"q/{flow}", "") for flow in live)
    return Catalogue(ROUTES[:3], lambda queue: serving.get(queue, []), ALIASES, announced=lambda: routes)


def test_what_processors_announce_can_be_asked_after_all_that_the_file_names() -> None:
    here = {flow: Presence(flow, (f"q/{flow}",), 1, 0, models) for flow, models in [
        ("default", ("small",)), ("theirs", ("novel", "gpt", "small", "small:x")), ("zoo", ("novel",)),
    ]}  # fmt: skip
    known = announcing(**here)
    assert known.models() == ("small", "novel", "gpt")
    novel = known.find_model("novel")
    assert (novel.route.flow, novel.processors) == ("theirs", 1)
    assert [known.find_model(name).route for name in ("gpt", "small", "small:x")] == [DEFAULT] * 3
    assert known.find_model("novel", "zoo").route.flow == "zoo"
    assert known.find_service("zoo", "text-completion").request == "q/zoo"
    assert known.copy().find_model("novel") == novel
    assert list(known.find_served().items()) == [(name, known.find_model(name)) for name in known.models()]
    for unknown in (("zoo", "prompt"), ("nobody", "text-completion")):
        with pytest.raises(NotFound):
            known.find_service(*unknown)
    with pytest.raises(NotFound, match="there are: small, big:8b, gpt, tuned, lost, novel"):
        known.find_model("none")


def test_a_model_of_the_file_is_no_announced_one_while_its_flow_still_has_the_one_before() -> None:
    theirs = Presence("theirs", ("q/theirs",), 1, 0, ("small", "big:8b", "big:8b:x", "small:x", "novel"))
    known = announcing(default=Presence("p", ("q/default",), 1, 0, ("before",)), theirs=theirs)
    assert known.models() == ("before", "novel")
    for name in ("small", "small:x", "gpt"):
        with pytest.raises(NotFound, match="there are: before, big:8b, gpt, tuned, small, lost, novel"):
            known.find_model(name)
    for name in ("big:8b", "big:8b:x", "tuned"):
        assert known.find_model(name).route == OTHER


def test_the_list_looks_at_each_announced_flow_a_few_times_however_many_there_are() -> None:
    here = {f"q/{flow}": [Presence(f"{flow}", (f"q/{flow}",), 1, 0, (f"m{flow}",))] for flow in range(100)}
    routes = tuple(Route(queue, TEXT_COMPLETION, queue, "") for queue in here)
    looks: list[str] = []

    def look(queue: str) -> list[Presence]:
        looks.append(queue)
        return here.get(queue, [])

    known = Catalogue(ROUTES[:3], look, ALIASES, announced=lambda: routes)
    assert len(known.models()) == 100
    assert len(looks) < 30 * len(here)


def test_what_one_processor_can_announce_is_bounded() -> None:
    longest = "x" * MAX_MODEL_CHARACTERS
    names = (longest + "x", longest, *map(str, range(MAX_ANNOUNCED_MODELS)))
    known = announcing(theirs=Presence("p", ("q/theirs",), 1, 0, names))
    assert known.models() == names[1:MAX_ANNOUNCED_MODELS]
    for name in (names[0], names[-1]):
        with pytest.raises(NotFound) as refused:
            known.find_model(name)
        assert longest in refused.value.message
        assert names[0] not in refused.value.message


def test_a_file_without_flows_has_those_that_are_announced() -> None:
    routes = tuple(Route(flow, TEXT_COMPLETION, f"q/{flow}", "") for flow in ("a", "b"))
    here = {f"q/{flow}": [Presence(flow, (f"q/{flow}",), 1, 0, (f"m{flow}",))] for flow in "ab"}
    known = Catalogue((), here.__getitem__, {"x": "mb"}, announced=lambda: routes)
    assert (known.default_flow, known.models()) == ("a", ("ma", "mb", "x"))
    assert (known.find_model(None).model, known.find_model("x").model) == ("ma", "mb")


def test_without_a_default_flow_the_first_one_is_asked() -> None:
    found = Catalogue((OTHER, TWIN), lambda queue: [], {})
    assert (found.default_flow, found.find_model(None)) == ("other", FoundModel(OTHER, "big:8b"))
    assert catalogue().default_flow == "default"


def test_a_gateway_without_text_completion() -> None:
    with pytest.raises(NotFound, match="it has: prompt"):
        Catalogue((PROMPTS,), lambda _: [], {}).find_model(None)
