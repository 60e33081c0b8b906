"""[routes] -> plans: what is read, and what is refused with its line."""

from pathlib import Path

import pytest

from tg_base.config import (
    Config,
    Findings,
    inspect_config,
    sound_part,
)
from tg_base.config.reader import parse_config
from tg_base.config.services import SERVICES
from tg_schema.errors import BadRequest

FILE = Path("tg.toml")
MODELS = (
    '[models]\na.provider = "x"\nb.provider = "x"\n'
    '[flows]\na.text-completion.model = "a"\nb.text-completion.model = "b"\n'
)


def parse(text: str) -> Config:
    return parse_config(MODELS + text, FILE)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[routes.r]\nmodels = ["a", "c"]', 8, 'no flow has the model "c"; known are a, b. Add [flows.NAME]'),
        ('[routes.r]\nmodels = ["r"]', 8, '"r" and "r" lead to each other in a circle'),
        ('[routes.r]\nmodels = ["s"]\n[routes.s]\nmodels = ["r"]', 8, '"r" and "s" lead to each other in a circle'),
        ('[routes.r]\nmodels = ["a", "a"]', 8, '"a" is there twice'),
        ("[routes.r]\nweights = { a = 0 }", 8, "routes.r.weights.a must be a number > 0.0"),
        ("[routes.r]\nweights = { a = -1 }", 8, "routes.r.weights.a must be a number > 0.0"),
        ("[routes.r]\nweights = { a = nan }", 8, "routes.r.weights.a must be a number"),
        ("[routes.r]\nweights = { a = inf }", 8, "routes.r.weights.a must be a number"),
        ("[routes.r]\nweights = { c = 1 }", 8, 'no flow has the model "c"'),
        ("[routes.r]", 7, 'route "r" needs either models or weights'),
        ('[routes.r]\nmodels = ["a"]\nweights = { b = 1 }', 7, "needs either models or weights"),
        ('[routes.r]\nmodels = ["a"]\nshadow = "c"', 9, 'no flow has the model "c"'),
        ('[routes.r]\nmodels = ["a"]\ntries = 0', 9, "routes.r.tries must be a whole number >= 1"),
        ('[routes.r]\nmodels = ["a"]\nfallback = ["often"]', 9, 'must be one of "rate-limited", "unavailable"'),
        ('[routes.a]\nmodels = ["b"]', 7, '"a" is the name of a model too; rename one of them'),
        ('[routes.r]\nmodels = ["a"]\n[gateway.aliases]\nr = "a"', 7, '"r" is the name of an alias too'),
        ('[gateway.aliases]\nx = "r"', 8, 'no flow has the model "r"'),
        ('[flows.c]\ntext-completion.model = "r"', 8, 'there is no model "r"'),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(text)
    assert refused.value.message.startswith(f"tg.toml, line {line}: "), refused.value.message
    assert words in refused.value.message


def test_a_check_names_all_mistakes_and_goes_on_with_the_rest(tmp_path: Path) -> None:
    file, findings = tmp_path / "tg.toml", Findings()
    file.write_text(f'{MODELS}c.text-completion.model = "r"\n[routes]\nr.models = ["x", "y"]\ns.models = ["b"]\n')
    config = inspect_config(file, findings, SERVICES)
    assert len(findings.sentences) == 2
    assert config is not None
    assert list(sound_part(config).plans) == ["s"]
    assert "c" not in sound_part(config).flows


def test_a_route_has_the_queues_of_its_models() -> None:
    config = parse(
        'd.text-completion.model = "r"\n[gateway.aliases]\nx = "r"\n[routes]\nr.models = ["s", "a"]\ns.models = ["b"]'
    )
    plan, queues = config.plans["r"], {route.flow: route for route in config.routes("text-completion")}
    assert plan.queues == (queues["b"], queues["a"])
    assert plan.followed == (queues["b"],)
    assert (queues["d"].plan, queues["d"].request, queues["d"].model) == ("r", queues["b"].request, "r")
    assert plan.entry.flow == "b"
