"""The configuration file: what it may say, and how a mistake is named."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from tests.installed_package import install_package
from tg_base.config import (
    Config,
    ConfigWatcher,
    read_config,
)
from tg_base.config.model import ModelConfig
from tg_base.config.reader import DEFAULT_FILE, parse_config
from tg_base.config.toml_positions import Position, places_of
from tg_base.config.toml_text import MAX_FILE_BYTES
from tg_schema.errors import BadRequest, NotFound

FILE = Path("tg.toml")
KEY = f'[[gateway.keys]]\nname = "k"\nsha256 = "{"0" * 64}"\ngroups = ["a", "b", "default", "*"]\n'
GOOD = '[models.m]\nprovider = "openai"\n[flows.f]\ntext-completion = { model = "m" }\n'


def test_the_default_serves_the_demo_model_and_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_config(DEFAULT_FILE)
    assert config.bus.url == "memory://"
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 8888)
    assert {name: model.provider for name, model in config.models.items()} == {"tinydemo": "demo"}
    assert [route.flow for route in config.routes("text-completion")] == ["default"]
    assert [route.flow for route in config.routes("prompt")] == ["default"]
    assert set(config.prompts.templates) == {"question", "list", "translate", "extract", "facts"}
    config = msgspec.structs.replace(config, source=None)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    assert ConfigWatcher().config == config
    monkeypatch.setitem(sys.modules, "llama_cpp", ModuleType("llama_cpp"))
    models = {"tinydemo": ModelConfig("llama-cpp", {"temperature": 0})}
    monkeypatch.setattr(sys.modules["llama_cpp"], "__spec__", ModuleSpec("llama_cpp", None))
    assert ConfigWatcher().config == msgspec.structs.replace(config, models=models)


@pytest.mark.parametrize("file", [DEFAULT_FILE, Path(__file__).parents[2] / "tokengrid.toml"])
def test_what_the_demo_model_says_is_no_chance(file: Path) -> None:
    """What README shows that it says comes each time, and not in most of them."""
    assert [model.options for model in read_config(file).models.values()] == [{"temperature": 0}]


def test_an_empty_file_is_a_configuration() -> None:
    config = parse_config("", FILE)
    assert config.flows == {}
    assert config.source is not None
    assert config.source.file == FILE


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[gateway]\nprot = 1", 2, 'unknown field "prot" in gateway; did you mean "port"?'),
        ("[gateway]\nzzz = 1", 2, 'unknown field "zzz" in gateway; known are host, port'),
        (
            "nothing = 1",
            1,
            'unknown field "nothing" in the file; known are bus, gateway, models, routes, services, flows, prompts, ',
        ),
        ('source = "x"', 1, 'unknown field "source" in the file'),
        ("gateway = 3", 1, "gateway must be a table, not a whole number"),
        ('\n\n[gateway]\n\nport = "a"', 5, "gateway.port must be a whole number, not text"),
        ("[gateway]\nport = 1.5", 2, "gateway.port must be a whole number, not one with a fraction"),
        ("[gateway]\nport = 2020-01-01", 2, "gateway.port must be a whole number, not a date"),
        ("gateway.x.y = 1\n[gateway.x]", 2, "not valid TOML: cannot declare gateway.x twice"),
        (GOOD.replace('"m"', '"g 5"'), 4, 'there is no model "g 5"; known are m. Add a table [models."g 5"]'),
        ("[gateway]\nport = 99999", 2, "gateway.port must be a whole number <= 65535"),
        ('[gateway]\nauth = "x"', 2, 'gateway.auth must be one of "auto", "on", "off"'),
        ("[gateway]\nrequest_timeout = 0", 2, "gateway.request_timeout must be a number > 0"),
        ("[gateway]\nkeep_alive = inf", 2, "gateway.keep_alive must be a number <= 31536000"),
        ("[gateway]\nkeep_alive = nan", 2, "gateway.keep_alive must be a number"),
        ("[gateway]\nauth_timeout = 1e12", 2, "gateway.auth_timeout must be a number <= 31536000"),
        ("[gateway]\ndrain = inf", 2, "gateway.drain must be a number <= 31536000"),
        ('[[gateway.keys]]\nname = "a"\n', 1, "gateway.keys.0 needs the field sha256"),
        ('[gateway]\nkeys = [\n  { name = "a", sha256 = "x" },\n]', 3, "sha256 must be the token's SHA-256"),
        ("[models.a]\noptions = {}", 1, "models.a needs the field provider"),
        ('[models.a]\nprovider = "x"\n[models."b.c"]\nprovider = 1', 4, "models.b.c.provider must be text"),
        ('[flows.a]\ntext-completion = { modle = "x" }', 2, 'unknown field "modle" in flows.a.text-completion'),
        ('[prompts.templates.q]\nprompt = """\n[x]\ny = 1\n"""\nresponse_type = "xml"', 6, "must be one of"),
        ("[prompts.templates.q]\nprompt = 1", 2, "prompts.templates.q.prompt must be text"),
        ("[bus.options]\ntrust_certs = 1", 2, "bus.options.trust_certs must be text, not a whole number"),
        ("[bus.options]\nfoo = 1", 2, 'unknown field "foo" in bus.options'),
        ("[flows.f]\ntext-completion = {}", 2, "text-completion needs a model"),
        ('[flows.f]\ntext-completion = { model = "m" }', 2, 'there is no model "m"; known are none'),
        (GOOD + "agnet = {}", 5, 'there is no service "agnet"; did you mean "agent"?'),
        (GOOD + "x = {}", 5, 'there is no service "x"; known are agent, jobs, prompt, text-completion, usage'),
        (GOOD + 'prompt.model = "m"', 5, "only text-completion and agent have a model"),
        (GOOD + 'prompt.pattern = "supervisor"', 5, "only agent has pattern; remove it here"),
        (GOOD + 'agent.pattern = "x"', 5, 'there is no pattern "x"; known are plan-then-execute, react, supervisor'),
        (GOOD + 'agent.pattern = "supervisor"', 5, "a supervisor needs agents"),
        (GOOD + 'agent.model = "x"', 5, 'no flow\'s text-completion has the model "x"'),
        (GOOD + 'agent.tools = ["x"]', 5, 'there is no tool "x"; known are none'),
        (GOOD + 'agent = { agents = ["g"] }', 5, 'flow "g" has no agent'),
        (GOOD + 'agent = { agents = ["f"] }', 5, 'the agents of "f" and "f" ask each other in a circle'),
        (GOOD + '[gateway.aliases]\nx = "M"', 6, 'no flow has the model "M"; name one of them (m), or MODEL:ADAPTER'),
        (GOOD + '[gateway.aliases]\nx = "M:a"', 6, 'no flow has the model "M:a"'),
        (GOOD + '[gateway.aliases]\nx = "m"\ny = "x"', 7, 'no flow has the model "x"'),
        (GOOD + "[gateway.lmi.models.M]\ntgi_compat = true", 5, 'no flow has the model "M"'),
        (
            "[gateway.lmi]\ntgi_compact = true",
            2,
            '"tgi_compact" in gateway.lmi; did you mean "tgi_compat"?',
        ),
        (
            "[gateway]\nlmi.models.m.rolling_batch = 1",
            2,
            "gateway.lmi.models.m.rolling_batch must be true or",
        ),
        ("[gateway]\nlmi = 1", 2, "gateway.lmi must be a table, not a whole number"),
        ("[gateway.lmii]\na = 1", 1, "; doors with a table here: lmi"),
        ("[gateway]\ndoors.lmi.tgi_compat = true", 2, 'unknown field "doors" in gateway'),
        (KEY + '[tools.t]\nkind = "http"\ngroup = ["a"]', 4, 'no tool is in the group "b"; known are a'),
        ("[flows.f]\nagent = {}", 2, 'flow "f" has an agent but no text-completion'),
        ('[tools."a b"]\nkind = "http"', 1, "a tool's name may have"),
        ('[tools.a]\nkind = "x"', 2, 'there is no kind of tool "x"; known are http, mcp, prompt, python, service'),
        ("[flows.f]\nprompt = {}", 2, 'flow "f" has prompts but no text-completion'),
        ('[flows.f]\nprompt = { plain = true, request = "x" }', 2, "write a topic"),
        ('[flows."a/b"]\n', 1, "a flow's name may have letters"),
        (GOOD + "[flows.g]", 5, 'flow "g" has no service to ask; add one, for instance text-completion = { model'),
        ("a =", 1, "not valid TOML: invalid value"),
        ("[a]\nb = 1\nb = 2\n\n", 3, "not valid TOML: cannot overwrite a value"),
        ("ok = 1\n[a\n", 2, "not valid TOML"),
        ('x = "\x00"', 1, "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_config(text, FILE)
    assert refused.value.message.startswith(f"tg.toml, line {line}: ")
    assert words in refused.value.message


def test_a_table_of_a_door_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = "[tokengrid.door_tables]\nlmi = tg_doors:LmiConfig\nlost = tg_doors:Lost\n"
    install_package(tmp_path, monkeypatch, "house-doors", points)
    with pytest.raises(NotFound, match='there is no table of a door "lost" that can be imported'):
        parse_config("[gateway.lost]", FILE)
    with pytest.raises(NotFound, match='several packages have a table of a door "lmi": house-doors, tokengrid-doors'):
        parse_config("[gateway.lmi]", FILE)


def test_text_is_a_path_where_a_file_is_meant() -> None:
    options = parse_config('[bus.options]\ntoken_file = "/run/token"\ntrust_certs = "ours.pem"', FILE).bus.options
    assert (options.token_file, options.trust_certs) == (Path("/run/token"), Path("ours.pem"))


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        (GOOD + '[gateway]\naliases = { x = "m", y = "m:adapter", z = "x:adapter" }\nlmi.models.m = {}', ()),
        ('[gateway]\naliases = { x = "theirs" }\n[flows.f]\ntext-completion = { plain = true }', ()),
        (GOOD + '[gateway]\naliases = { x = "of-the-command-line" }', ("default",)),
        ('[gateway]\naliases = { x = "of-another-part" }', ()),
        (GOOD + '[gateway]\nannounced = true\naliases = { x = "of-a-processor" }', ()),
        (KEY, ()),
    ],
)
def test_a_name_that_leads_somewhere_or_may_is_no_mistake(text: str, completed: tuple[str, ...]) -> None:
    parse_config(text, FILE, completed=completed)


def test_a_plain_flow_needs_no_model() -> None:
    config = parse_config('[flows.f]\ntext-completion = { plain = true, request = "request:tg:tc:d:d" }', FILE)
    assert config.routes("text-completion")[0].request == "non-persistent://tg/request/tc:d:d"


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "latin.toml"
    wrong.write_bytes(b'a = "ok"\nb = "\xe9"\n')
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadRequest, match=r"none\.toml is not there; name an existing"):
        read_config(tmp_path / "none.toml")
    with pytest.raises(BadRequest, match="is a directory"):
        read_config(tmp_path)
    with pytest.raises(BadRequest, match=r"latin\.toml, line 2: a byte that is not UTF-8"):
        read_config(wrong)
    with pytest.raises(BadRequest, match="is larger than"):
        read_config(large)
    with pytest.raises(BadRequest, match=r"t\.toml: tables or lists are nested too deep"):
        parse_config("a = " + "[" * 100_000, Path("t.toml"))
    with pytest.raises(BadRequest, match=r"t\.toml: a number has too many digits; shorten it"):
        parse_config("gateway.port = " + "1" * 5000, Path("t.toml"))


def test_every_key_is_found_where_it_stands() -> None:
    text = """top = 1  # [not.a.table]
[a]
b.c = "x # y = 1"
"d.e" = '''
first = 1
[second]
'''
f = \"\"\"one line\"\"\"
list = [
  1,
  { g = 1, h = [2, 3] },
]
[[t.u]]
v = 1
[[t.u]]
v = 2
[t.u.w]
x = 2020-01-01
"""
    assert places_of(text) == {
        ("top",): Position(1),
        ("a",): Position(2),
        ("a", "b"): Position(3),
        ("a", "b", "c"): Position(3),
        ("a", "d.e"): Position(4, 5),
        ("a", "f"): Position(8, 8),
        ("a", "list"): Position(9),
        ("a", "list", "0"): Position(10),
        ("a", "list", "1"): Position(11),
        ("a", "list", "1", "g"): Position(11),
        ("a", "list", "1", "h"): Position(11),
        ("a", "list", "1", "h", "0"): Position(11),
        ("a", "list", "1", "h", "1"): Position(11),
        ("t",): Position(13),
        ("t", "u"): Position(13),
        ("t", "u", "0"): Position(13),
        ("t", "u", "0", "v"): Position(14),
        ("t", "u", "1"): Position(15),
        ("t", "u", "1", "v"): Position(16),
        ("t", "u", "1", "w"): Position(17),
        ("t", "u", "1", "w", "x"): Position(18),
    }


def test_a_line_inside_a_text_is_found() -> None:
    config = parse_config('[prompts]\nsystem = """\none\ntwo\n"""\n[prompts.templates]\nq.prompt = "a\\nb"\n', FILE)
    assert config.where("prompts", "system", line=2) == "tg.toml, line 4"
    assert config.where("prompts", "templates", "q", "prompt", line=2) == "tg.toml, line 7"
    assert config.where("prompts", "templates", "q", "schema", "type") == "tg.toml, line 7"
    assert config.where("bus") == "tg.toml"
    assert Config().where("bus", "url") == "bus.url"
