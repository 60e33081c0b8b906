"""What the command line changes in a configuration, and what it leaves."""

from pathlib import Path

import pytest

from tg_base.config import CliOverrides, Config, TextCompletionConfig
from tg_base.config.reader import parse_config
from tg_schema.errors import BadRequest

CONFIG = parse_config(
    """
    [gateway]
    port = 1234
    drain = 3
    [models.a]
    provider = "openai"
    [models.b]
    provider = "openai"
    options = { base_url = "http://b/" }
    [flows.default]
    text-completion = { model = "a" }
    prompt = {}
    [flows.other]
    text-completion = { model = "a" }
    """,
    Path("t.toml"),
)


def bound(config: Config, flow: str = "default") -> tuple[str, str, dict[str, object]]:
    name = config.bound(TextCompletionConfig)[flow].model
    assert name is not None
    return name, config.models[name].provider, config.models[name].options


def test_nothing_given_changes_nothing() -> None:
    assert CliOverrides().apply(CONFIG) == CONFIG


def test_bus_and_gateway() -> None:
    config = CliOverrides(bus="pulsar://p:6650", host="::1", port=0, drain=0.0).apply(CONFIG)
    assert config.bus.url == "pulsar://p:6650"
    assert (config.gateway.host, config.gateway.port, config.gateway.drain) == ("::1", 0, 0.0)
    assert CliOverrides(port=1).apply(CONFIG).gateway.drain == 3
    paged = CliOverrides(origins=("https://a",), allow_credentials=True).apply(CONFIG).gateway
    assert (paged.origins, paged.allow_credentials) == (("https://a",), True)


def test_a_key_stands_beside_those_of_the_file() -> None:
    once = CliOverrides(key="0" * 64).apply(CONFIG)
    assert [key.sha256 for key in CliOverrides(key="1" * 64).apply(once).gateway.keys] == ["0" * 64, "1" * 64]
    assert CliOverrides().apply(once).gateway.keys == once.gateway.keys


def test_a_configured_model() -> None:
    config = CliOverrides(model="b").apply(CONFIG)
    assert bound(config) == ("b", "openai", {"base_url": "http://b/"})
    assert bound(config, "other")[0] == "a"
    more = CliOverrides(model="b", options={"slots": 2}).apply(CONFIG)
    assert bound(more) == ("b", "openai", {"base_url": "http://b/", "slots": 2})
    assert "prompt" in config.flows["default"]


@pytest.mark.parametrize("path", ["some/model.v2.gguf", "hf:owner/name/model.v2.gguf"])
def test_a_file(path: str) -> None:
    assert bound(CliOverrides(model=path).apply(CONFIG)) == ("model.v2", "llama-cpp", {"path": path})
    assert bound(CliOverrides(model=path, options={"slots": 2}).apply(CONFIG))[2] == {"path": path, "slots": 2}


def test_a_provider_and_its_options() -> None:
    config = CliOverrides(model="gpt", provider="openai", options={"base_url": "http://x/"}).apply(CONFIG)
    assert bound(config) == ("gpt", "openai", {"base_url": "http://x/"})


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[gateway]\naliases = { x = "a" }', 9, 'no flow has the model "a"; name one of them (b, other)'),
        ('[routes.r]\nmodels = ["a"]', 9, 'no flow has the model "a"; known are b, other'),
    ],
)
def test_a_name_that_leads_nowhere_with_the_models_of_the_options_either(text: str, line: int, words: str) -> None:
    models = '[models]\na.provider = "openai"\nb.provider = "openai"\nother.provider = "openai"\n'
    flows = '[flows]\ndefault.text-completion.model = "a"\nother.text-completion.model = "other"\n'
    config = parse_config(models + flows + text, Path("t.toml"), completed=("default",))
    with pytest.raises(BadRequest) as refused:
        CliOverrides(model="b").apply(config)
    assert refused.value.message.startswith(f"t.toml, line {line}: {words}")


def test_names_may_lead_to_models_that_only_on_demand_gives_a_flow() -> None:
    models = '[models]\na.provider = "openai"\n"b:8b".provider = "openai"\n[routes]\nr.models = ["a", "b:8b"]\n'
    text = models + '[flows]\ndefault.text-completion.model = "a"\n[gateway]\naliases.x = "{}"'
    given = CliOverrides(on_demand=True)

    def read(alias: str) -> Config:
        return given.apply(parse_config(text.format(alias), Path("t.toml"), completed=given.completed))

    assert bound(read("b:8b"), "b:8b")[0] == "b:8b"
    with pytest.raises(BadRequest, match=r't\.toml, line 9: no flow has the model "lost"'):
        read("lost")


def test_a_configuration_without_flows() -> None:
    assert bound(CliOverrides(model="m.gguf").apply(Config()))[0] == "m"


def test_additional_models() -> None:
    given = CliOverrides(model="b", additional_models=("x/m.v2.gguf", "a"), options={"slots": 2})
    config = given.apply(CONFIG)
    assert bound(config) == ("b", "openai", {"base_url": "http://b/", "slots": 2})
    assert bound(config, "m.v2") == ("m.v2", "llama-cpp", {"path": "x/m.v2.gguf", "slots": 2})
    assert bound(config, "a") == ("a", "openai", {"slots": 2})
    assert list(config.flows["a"]) == ["text-completion"]
    with pytest.raises(BadRequest, match='two models would have the name "m"'):
        CliOverrides(model="x/m.gguf", additional_models=("y/m.gguf",)).apply(CONFIG)


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(BadRequest, match=r'no model "c" \(known: a, b\)'):
        CliOverrides(model="c").apply(CONFIG)
