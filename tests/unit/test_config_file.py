"""The configuration file: what it may say, how a mistake is named, and how an edit comes into force."""

import asyncio
import os
import re
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
import structlog

from tg_base.bus import BusOptions
from tg_base.config import (
    SERVICES,
    AgentLimits,
    ApiKey,
    Config,
    ConfigWatcher,
    GatewayConfig,
    ToolConfig,
    read_config,
)
from tg_base.config.changes import is_followed
from tg_base.config.model import BusConfig, ModelConfig, PromptsConfig, TemplateConfig
from tg_base.config.reader import DEFAULT_FILE, MAX_FILE_BYTES, parse_config
from tg_base.config.toml_positions import Position, places_of
from tg_base.llm import ProviderOptions
from tg_base.llm.guard import Clocks
from tg_flow.agent.tools.completion_tool import CompletionOptions
from tg_flow.agent.tools.http_tool import HttpOptions
from tg_flow.agent.tools.mcp_options import McpOptions
from tg_flow.agent.tools.prompt_tool import PromptOptions
from tg_flow.agent.tools.python_tool import PythonOptions
from tg_flow.agent.tools.service_tool import ServiceOptions
from tg_flow.llama.provider import LlamaCppOptions
from tg_schema.errors import BadRequest

DOCUMENT = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
FILE = Path("tg.toml")
GOOD = '[models.m]\nprovider = "openai"\n[flows.f]\ntext-completion = { model = "m" }\n'


def test_the_default_serves_the_demo_model_and_prompts() -> None:
    config = read_config(DEFAULT_FILE)
    assert config.bus.url == "memory://"
    assert (config.gateway.host, config.gateway.port) == ("127.0.0.1", 8888)
    assert {name: model.provider for name, model in config.models.items()} == {"tinydemo": "llama-cpp"}
    assert [route.flow for route in config.routes("text-completion")] == ["default"]
    assert [route.flow for route in config.routes("prompt")] == ["default"]
    assert set(config.prompts.templates) == {"question", "list", "translate", "extract", "facts"}
    assert ConfigWatcher().config == msgspec.structs.replace(config, source=None)


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
            'unknown field "nothing" in the file; known are bus, gateway, models, flows, prompts, tools',
        ),
        ('source = "x"', 1, 'unknown field "source" in the file'),
        ("gateway = 3", 1, "gateway must be a table, not a whole number"),
        ('\n\n[gateway]\n\nport = "a"', 5, "gateway.port must be a whole number, not text"),
        ("[gateway]\nport = 99999", 2, "gateway.port must be a whole number <= 65535"),
        ('[gateway]\nauth = "x"', 2, 'gateway.auth must be one of "auto", "on", "off"'),
        ("[gateway]\nrequest_timeout = 0", 2, "gateway.request_timeout must be a number > 0"),
        ("[gateway]\nkeep_alive = inf", 2, "gateway.keep_alive must be a number <= 31536000"),
        ("[gateway]\nkeep_alive = nan", 2, "gateway.keep_alive must be a number"),
        ("[gateway]\nauth_timeout = 1e12", 2, "gateway.auth_timeout must be a number <= 31536000"),
        ("[gateway]\ndrain = inf", 2, "gateway.drain must be a number <= 31536000"),
        ('[[gateway.keys]]\nname = "a"\n', 1, "gateway.keys.0 needs the field sha256"),
        ('[gateway]\nkeys = [\n  { name = "a", sha256 = "x" },\n]', 3, "gateway.keys.0.sha256 must be text matching"),
        ("[models.a]\noptions = {}", 1, "models.a needs the field provider"),
        ('[models.a]\nprovider = "x"\n[models."b.c"]\nprovider = 1', 4, "models.b.c.provider must be text"),
        ('[flows.a]\ntext-completion = { modle = "x" }', 2, 'unknown field "modle" in flows.a.text-completion'),
        ('[prompts.templates.q]\nprompt = """\n[x]\ny = 1\n"""\nresponse_type = "xml"', 6, "must be one of"),
        ("[prompts.templates.q]\nprompt = 1", 2, "prompts.templates.q.prompt must be text"),
        ("[bus.options]\ntrust_certs = 1", 2, "bus.options.trust_certs must be text, not a whole number"),
        ("[bus.options]\nfoo = 1", 2, 'unknown field "foo" in bus.options'),
        ("[flows.f]\ntext-completion = {}", 2, "text-completion needs a model"),
        ('[flows.f]\ntext-completion = { model = "m" }', 2, 'there is no model "m"; known are none'),
        (GOOD + "agnet = {}", 5, 'there is no service "agnet"; known are agent, prompt, text-completion'),
        (GOOD + 'prompt.model = "m"', 5, "only text-completion and agent have a model"),
        (GOOD + 'prompt.pattern = "supervisor"', 5, "only agent has pattern; remove it here"),
        (GOOD + 'agent.pattern = "x"', 5, 'flows.f.agent.pattern must be one of "react", "plan-then-execute"'),
        (GOOD + 'agent.pattern = "supervisor"', 5, "a supervisor needs agents"),
        (GOOD + 'agent.model = "x"', 5, 'no flow\'s text-completion has the model "x"'),
        (GOOD + 'agent.tools = ["x"]', 5, 'there is no tool "x"; known are none'),
        (GOOD + 'agent = { agents = ["g"] }', 5, 'flow "g" has no agent'),
        (GOOD + 'agent = { agents = ["f"] }', 5, 'the agents of "f" and "f" ask each other in a circle'),
        ("[flows.f]\nagent = {}", 2, 'flow "f" has an agent but no text-completion'),
        ('[tools."a b"]\nkind = "http"', 1, "a tool's name may have"),
        ('[tools.a]\nkind = "x"', 2, 'tools.a.kind must be one of "prompt", "text-completion", "python"'),
        ("[flows.f]\nprompt = {}", 2, 'flow "f" has prompts but no text-completion'),
        ('[flows.f]\nprompt = { plain = true, request = "x" }', 2, "write a topic"),
        ('[flows."a/b"]\n', 1, "a flow's name may have letters"),
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


def test_text_is_a_path_where_a_file_is_meant() -> None:
    options = parse_config('[bus.options]\ntoken_file = "/run/token"\ntrust_certs = "ours.pem"', FILE).bus.options
    assert (options.token_file, options.trust_certs) == (Path("/run/token"), Path("ours.pem"))


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


class Heard:
    """A follower that keeps what it was told, and may refuse."""

    def __init__(self) -> None:
        self.configs: list[Config] = []
        self.told = asyncio.Event()
        self.refuse = False

    def prepare(self, config: Config) -> Callable[[], None]:
        if self.refuse:
            raise BadRequest(f"{config.where('bus', 'url')}: not today")

        def commit() -> None:
            self.configs.append(config)
            self.told.set()

        return commit


async def seen(logs: list[MutableMapping[str, Any]], event: str) -> MutableMapping[str, Any]:
    """The first log line of that event, as soon as it is written; it is taken away, with all before it."""
    async with asyncio.timeout(5):
        while True:
            for number, entry in enumerate(logs):
                if entry["event"] == event:
                    del logs[: number + 1]
                    return entry
            await asyncio.sleep(0.005)


def replace(file: Path, text: str) -> None:
    """As editors do it: a new file in place of the old one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


async def test_an_edit_is_in_force_within_half_a_second(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("[gateway]\nreserve_tokens = 1\n")
    async with ConfigWatcher(file) as config_file:
        with config_file.follow(heard.prepare):
            replace(file, "[gateway]\nreserve_tokens = 2\n")
            await asyncio.wait_for(heard.told.wait(), 1)
            assert heard.configs[0].gateway.reserve_tokens == config_file.config.gateway.reserve_tokens == 2


async def test_a_broken_edit_is_refused_and_the_old_one_stays(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text('[bus]\nurl = "memory://"\n')
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(heard.prepare):
                before = config_file.config
                file.write_text('[bus]\nurl = "memory://"\nnamespcae = "x"\n')
                refused = await seen(logs, "config.refused")
                assert refused["reason"] == (
                    f'{file}, line 3: unknown field "namespcae" in bus; did you mean "namespace"?'
                )
                file.unlink()
                assert "is not there" in str((await seen(logs, "config.refused"))["reason"])
                assert config_file.config is before
                assert heard.configs == []
                replace(file, '[bus]\nurl = "memory://"\n[prompts]\nsystem = "x"\n')
                await seen(logs, "config.recovered")
                assert (await seen(logs, "config.in_force"))["keys"] == ["prompts.system"]
                assert heard.configs[0].prompts.system == "x"


async def test_a_follower_can_refuse_for_all(tmp_path: Path) -> None:
    file, first, second = tmp_path / "tg.toml", Heard(), Heard()
    file.write_text("")
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(first.prepare), config_file.follow(second.prepare):
                second.refuse = True
                file.write_text('[bus]\nurl = "memory://"\n[prompts]\nsystem = "x"\n')
                assert (await seen(logs, "config.refused"))["reason"] == f"{file}, line 2: not today"
                assert first.configs == []
                second.refuse = False
                file.write_text('[bus]\nurl = "memory://"\n[prompts]\nsystem = "y"\n')
                await seen(logs, "config.recovered")
                assert [config.prompts.system for config in first.configs] == ["y"]


async def test_a_defect_of_a_follower_refuses_the_edit_and_the_next_one_is_in_force(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("")

    def prepare(config: Config) -> Callable[[], None]:
        if config.prompts.system == "x":
            raise ZeroDivisionError
        return heard.prepare(config)

    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(prepare):
                replace(file, '[prompts]\nsystem = "x"\n')
                refused = await seen(logs, "config.refused")
                assert refused["exc_info"]
                assert "a defect" in refused["reason"]
                assert config_file.config.prompts.system == ""
                replace(file, '[prompts]\nsystem = "y"\n')
                await seen(logs, "config.recovered")
                assert [config.prompts.system for config in heard.configs] == ["y"]


async def test_an_edit_of_the_same_size_and_time_is_noticed_by_its_new_file(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("gateway.reserve_tokens = 1\n")
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    async with ConfigWatcher(file, poll=0.01) as config_file:
        with config_file.follow(heard.prepare):
            new = tmp_path / "new"
            new.write_text("gateway.reserve_tokens = 2\n")
            os.utime(new, ns=times)
            new.replace(file)
            await asyncio.wait_for(heard.told.wait(), 5)
            assert config_file.config.gateway.reserve_tokens == 2


async def test_what_needs_a_restart_says_so_until_it_is_taken_back(tmp_path: Path) -> None:
    file, heard = tmp_path / "tg.toml", Heard()
    file.write_text("[gateway]\nport = 1\n" + GOOD)
    with structlog.testing.capture_logs() as logs:
        async with ConfigWatcher(file, poll=0.01) as config_file:
            with config_file.follow(heard.prepare):
                replace(file, "[gateway]\nport = 2\nhosts = ['h']\n" + GOOD + "[flows.g]\n")
                in_force = await seen(logs, "config.in_force")
                assert in_force == {
                    "event": "config.in_force",
                    "log_level": "info",
                    "file": str(file),
                    "keys": ["gateway.hosts"],
                }
                waiting = await seen(logs, "config.needs_restart")
                assert (waiting["keys"], waiting["log_level"]) == (["gateway.port", "flows.g"], "warning")
                assert waiting["reason"] == "this is read when a process starts; it needs a restart"
                assert (config_file.config.gateway.port, config_file.config.gateway.hosts) == (1, ("h",))
                assert list(config_file.config.flows) == ["f"]
                replace(file, "[gateway]\nport = 2\nhosts = ['i']\n" + GOOD)
                assert (await seen(logs, "config.needs_restart"))["keys"] == ["gateway.port"]
                replace(file, "[gateway]\nport = 1\nhosts = ['i']\n" + GOOD)
                await seen(logs, "config.unchanged")
                assert logs == []
                assert [config.gateway.hosts for config in heard.configs] == [("h",), ("i",), ("i",)]


def followed_fields(table: type[msgspec.Struct], keys: tuple[str, ...] = ()) -> set[str]:
    """The keys of all that is `Followed`."""
    found = set()
    for name, kind in get_type_hints(table, include_extras=True).items():
        if is_followed(kind):
            found.add(".".join((*keys, name)))
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            found |= followed_fields(kind, (*keys, name))
    return found


def test_the_documentation_lists_what_is_followed() -> None:
    listed = re.search(r"\| followed \| .*?\n\n", DOCUMENT, re.DOTALL)
    assert listed is not None
    services = [
        followed_fields(table, ("flows", "NAME", table.spec.name)) for table in SERVICES if table.spec is not None
    ]
    followed = followed_fields(Config).union(*services)
    assert set(re.findall(r"^\| `([A-Za-z_.-]+)`", listed[0], re.MULTILINE)) == followed


async def test_nobody_is_told_after_leaving(tmp_path: Path) -> None:
    file, left, stays = tmp_path / "tg.toml", Heard(), Heard()
    file.write_text("")
    async with ConfigWatcher(file, poll=0.01) as config_file:
        with config_file.follow(left.prepare):
            pass
        with config_file.follow(stays.prepare):
            file.write_text("gateway.port = 2\n")
            await asyncio.wait_for(stays.told.wait(), 5)
    assert left.configs == []


TABLES = [
    BusConfig,
    BusOptions,
    GatewayConfig,
    ApiKey,
    ModelConfig,
    *SERVICES,
    PromptsConfig,
    TemplateConfig,
    AgentLimits,
    ToolConfig,
]
TOOLS = [PythonOptions, HttpOptions, McpOptions, PromptOptions, CompletionOptions, ServiceOptions]


@pytest.mark.parametrize("table", [*TABLES, Clocks, ProviderOptions, LlamaCppOptions, *TOOLS])
def test_every_field_is_documented(table: type[msgspec.Struct]) -> None:
    named = {name.rpartition(".")[2] for name in re.findall(r"`\[*([A-Za-z0-9_.]+)\]*", DOCUMENT)}
    nested = {"options", "templates", "clocks", "keys", "limits"}
    assert set(table.__struct_fields__) - nested <= named
