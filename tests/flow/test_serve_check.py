"""`tg-serve --check` refuses what a start refuses, in the same words, each with its line; and asks a provider once."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fakes.openai_chat_server import CompatibleServer, OpenAiChatServer
from tests.fakes.plan import Fault, Plan
from tests.flow.command import ran
from tg_flow.providers import check_provider
from tg_flow.providers.check import MAX_TOKENS
from tg_llama.models import DEMO_MODEL
from tg_schema import ModelInfo, TgError
from tg_schema.errors import NotFound, ProviderAuth, RateLimited, Unavailable
from tg_serve.launcher import inspect, launch
from tg_serve.options import ServeOptions

GOOD = """
[gateway]
port = 0
[models.m]
provider = "openai-compatible"
options.base_url = "http://127.0.0.1:9/v1"
[flows.default]
text-completion = { model = "m" }
prompt = {}
agent = {}
"""
"""Ten lines after the first one, which a case fills or leaves empty."""


class Case(NamedTuple):
    """A file that cannot run: what stands in front of `GOOD`, what is replaced in it, and the one finding."""

    name: str
    more: str
    line: int
    words: str
    old: str = ""
    new: str = ""


CASES = [
    Case("provider", "", 5, 'there is no provider "opnai"', '"openai-compatible"', '"opnai"'),
    Case("package", "", 5, 'has the module "nobody_has", or put', '"openai-compatible"', '"nobody_has:This"'),
    Case("class", "", 5, "is not a subclass of", '"openai-compatible"', '"json:JSONDecoder"'),
    Case("option", "", 6, 'unknown field "base_ulr" in its options; did you mean "base_url"?', "base_url", "base_ulr"),
    Case("value", "", 6, "clocks.idle must be a number, not text", "options.base_url =", "options.clocks.idle ="),
    Case("list", "", 8, "without.0 must be one of", "[flows", 'options.without = [\n  "wings"]\n[flows'),
    Case("key-hash", '[[gateway.keys]]\nname = "k"\nsha256 = "my token"', 3, "must be the token's SHA-256, as"),
    Case("adapter-name", "", 7, "adapters.my adapter must be an adapter's name: ", "options.base_url",
         'options.path = ""\noptions.adapters."my adapter" = "a.gguf"\n#'),
    Case("url", "", 5, "set base_url, or the variable OPENAI_COMPATIBLE_BASE_URL", "options.base_url", "#"),
    Case("key", "", 5, "OPENAI_API_KEY is not set", '"openai-compatible"', '"openai"'),
    Case("own-key", "", 7, "MY_KEY is not set", "[flows", 'options.key_variable = "MY_KEY"\n[flows'),
    Case("file", "", 6, "there is no model file nowhere.gguf", "options.base_url", 'options.path = "nowhere.gguf"\n#'),
    Case("gguf", "", 6, "cannot load broken.gguf", "options.base_url", 'options.path = "FOLDER/broken.gguf"\n#'),
    Case("template", '[prompts.templates.t]\nprompt = """\nhello\n{% if %}"""', 4, "Expected an expression"),
    Case("system", '[prompts]\nsystem = "{{ x"\n[prompts.templates.t]\nprompt = "p"', 2, "unexpected end of template"),
    Case("schema", '[prompts.templates.t]\nprompt = "p"\nresponse_type = "json"\n[prompts.templates.t.schema]\n'
         'type = "object"\nproperties.a.type = "thing"', 6, "not a valid JSON schema"),
    Case("schema-of-text", '[prompts.templates.t]\nprompt = "p"\nschema = {}', 3, "a schema needs response_type"),
    Case("agent-prompt", '[prompts.templates.agent-react]\nprompt = "{{"', 2, "end of template"),
    Case("function", '[tools.t]\nkind = "python"\n\noptions.function = "json:nope"', 4, 'no function "json:nope"'),
    Case("tool-option", '[tools.t]\nkind = "http"\n\noptions.ulr = "http://x/"', 4, '"ulr" in its options; did you'),
    Case("tool-url", '[tools.t]\nkind = "http"\n\noptions.url = "x"', 4, "is no address"),
    Case("tool-secret", '[tools.t]\nkind = "http"\noptions.url = "http://x/"\noptions.secrets.a = "NOT_SET"', 4,
         "needs the environment variable NOT_SET"),
    Case("tool-schema", '[tools.t]\nkind = "python"\noptions.function = "tests.fakes.tools:add"\n'
         "arguments.properties = 3", 4, "not a valid JSON schema"),
    Case("tool-flow", '[tools.t]\nkind = "prompt"\ndescription = "d"\noptions.flow = "g"', 4, 'flow "g" has no prompt'),
    Case("tool-topic", '[tools.t]\nkind = "service"\noptions.request = "x"', 3, "write a topic"),
    Case("mcp", '[tools.t]\nkind = "mcp"\noptions.command = ["/no/such/program"]', 3, "the MCP server"),
    Case("bus", '[bus]\nurl = "kafka://x"', 2, 'there is no bus "kafka"; known are memory, pulsar'),
    Case("open-door", "", 3, "without any key", "port = 0", 'host = "0.0.0.0"'),
    Case("field", "", 3, 'unknown field "prot"', "port", "prot"),
    Case("reference", "", 8, 'there is no model "n"', 'model = "m"', 'model = "n"'),
    Case("no-tool", "", 10, 'there is no tool "x"', "agent = {}", 'agent.tools = ["x"]'),
    Case("toml", "[bus", 1, "not valid TOML"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_TOKEN", "OPENAI_COMPATIBLE_BASE_URL", "MY_KEY"):
        monkeypatch.delenv(name, raising=False)


def written(folder: Path, text: str) -> Path:
    file = folder / "tg.toml"
    (folder / "broken.gguf").write_bytes(b"GGUF, but no more")
    file.write_text(text.replace("FOLDER", str(folder)), "utf-8")
    return file


def text_of(case: Case) -> str:
    provider = "llama-cpp" if "options.path" in case.new else "openai-compatible"
    good = GOOD.replace(case.old, case.new, 1) if case.old else GOOD
    return case.more + good.replace("openai-compatible", provider)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_a_check_and_a_start_refuse_the_same(case: Case, tmp_path: Path) -> None:
    file = written(tmp_path, text_of(case))
    line = case.line
    _, findings = await inspect(ServeOptions(file=file))
    assert len(findings) == 1
    assert findings[0].startswith(f"{file}, line {line}: ")
    assert case.words in findings[0]
    with pytest.raises(TgError) as refused:
        async with launch(ServeOptions(file=file)):
            pass
    assert refused.value.message == findings[0]


async def test_what_runs_is_found_good(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    said, findings = await inspect(ServeOptions(file=file))
    assert findings == []
    assert said == (
        f"ok: {file} would serve text-completion (m of openai-compatible), prompt (0 templates), "
        "agent (default (react)), gateway (http://127.0.0.1:0/, auth auto), on memory://, which answers"
    )
    async with launch(ServeOptions(file=file)):
        pass


MANY = """[gateway]
host = "0.0.0.0"
[models.a]
provider = "opnai"
[models.b]
provider = "openai"
options.tires = 3
[models.c]
provider = "unused and unbound: not opened by a start either"
[flows.f]
text-completion = { model = "a" }
agent.tools = ["good", "bad", "worse"]
[flows.g]
text-completion = { model = "b" }
prompt = { model = "b" }
[flows.h]
text-completion = { model = "z" }
[tools.good]
kind = "http"
options.url = "http://tools.example/"
[tools.bad]
kind = "http"
options.url = "nowhere"
[tools.worse]
kind = "python"
options.function = "json:nope"
[prompts.templates.t]
prompt = "{{ a"
system = "{% b"
schema.type = 3
[prompts.templates.u]
prompt = "{{ c"
"""


async def test_all_is_told(tmp_path: Path) -> None:
    file = written(tmp_path, MANY)
    _, findings = await inspect(ServeOptions(file=file))
    lines = [int(found[1]) for one in findings if (found := re.match(rf"{re.escape(str(file))}, line (\d+): ", one))]
    assert lines == [15, 17, 4, 7, 28, 29, 30, 32, 23, 26, 2]


async def test_all_wrong_fields_are_told(tmp_path: Path) -> None:
    """Nothing is said of what cannot be judged without them."""
    text = """[gateway]
prot = 1
host = 3
auth = "maybe"
[[gateway.keys]]
name = "a"
[[gateway.keys]]
name = "b"
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
streams = -1
[[gateway.keys]]
name = "c"
prot = 1
[models.a]
provider = 7
[models.b]
options = {}
[flows.f]
text-completion = { model = "a", agents = ["x", 3] }
nothing = "at all"
[else]
"""
    file = written(tmp_path, text)
    _, findings = await inspect(ServeOptions(file=file))
    lines = [int(found[1]) for one in findings if (found := re.match(rf"{re.escape(str(file))}, line (\d+): ", one))]
    assert len(lines) == len(findings)
    assert sorted(lines) == [2, 3, 4, 5, 10, 13, 15, 16, 19, 20, 21]


BARE = """
[gateway]
port = 0
[models.m]
provider = "openai-compatible"
options.base_url = "http://127.0.0.1:9/v1"
lazy = true
[flows.default]
prompt = {}
agent = {}
[flows.other]
text-completion = {}
"""


async def test_a_flow_gets_its_model_from_the_command_line_alone(tmp_path: Path) -> None:
    file = written(tmp_path, BARE)
    bare, named = ServeOptions(file=file), ServeOptions(file=file, model="m")
    for order, lines in ((bare, [9, 10, 12]), (named, [12])):
        _, findings = await inspect(order)
        assert [int(one.partition(", line ")[2].partition(":")[0]) for one in findings] == lines
    written(tmp_path, BARE.replace("[flows.other]", ""))
    async with launch(named) as (config, _):
        assert config.flows["default"].keys() == {"prompt", "agent", "text-completion"}


async def test_an_alias_may_mean_a_model_that_only_the_command_line_gives_a_flow(tmp_path: Path) -> None:
    more = '[models.free]\nprovider = "openai-compatible"\noptions.base_url = "http://127.0.0.1:9/v1"\n'
    file = written(tmp_path, GOOD.replace("port = 0", 'port = 0\naliases.x = "free"') + more)
    for order, found in ((ServeOptions(file=file), 1), (ServeOptions(file=file, on_demand=True), 0)):
        assert len((await inspect(order))[1]) == found
    async with launch(order) as (config, _):
        assert config.flows.keys() == {"default", "free"}


async def test_the_command(tmp_path: Path) -> None:
    """Findings go to standard error, one a line; the start says the first of them."""
    file = written(tmp_path, MANY)
    checked = await ran("tg-serve", "--check", "--config", str(file))
    assert (checked.code, checked.out) == (1, "")
    assert [line.startswith(f"{file}, line ") for line in checked.err.splitlines()] == [True] * 11
    started = await ran("tg-serve", "--config", str(file))
    assert (started.code, started.out) == (1, "")
    assert started.err == f"tg-serve: {checked.err.splitlines()[0]}\n"


@pytest.mark.model
async def test_every_model_of_the_command_line_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "second.gguf"
    file.symlink_to(DEMO_MODEL)
    said, findings = await inspect(ServeOptions(model="tinydemo", additional_models=(str(file),)))
    assert findings == []
    assert "text-completion (tinydemo of llama-cpp, second of llama-cpp)" in said
    for name in ("tinydemo", "second"):
        assert f"llama-cpp: {name} answered" in said


MODEL = CompatibleServer.model


@pytest.fixture
async def server() -> AsyncIterator[CompatibleServer]:
    async with CompatibleServer.running() as running:
        yield running


async def test_a_model_is_asked_for_a_few_tokens(server: CompatibleServer) -> None:
    line = await check_provider("vllm", MODEL, {"base_url": f"{server.url}/v1", "tries": 9})
    assert re.fullmatch(
        rf"vllm: {MODEL}-2026-01-01 answered; first token after \d\.\d\d s, all after \d\.\d\d s; "
        "tokens: 11 in, 7 out; finish: stop",
        line,
    )
    (exchange,) = server.exchanges
    assert exchange.asked is not None
    assert exchange.asked.sampling.max_tokens == MAX_TOKENS


async def test_counts_that_nobody_told_are_unknown(server: CompatibleServer) -> None:
    server.play(Plan(counts=None))
    line = await check_provider("vllm", MODEL, {"base_url": f"{server.url}/v1", "usage_patience": 0.1})
    assert "tokens: unknown in, unknown out" in line


async def test_without_a_model_the_list_is_told(server: CompatibleServer) -> None:
    server.play(Plan(models=tuple(ModelInfo(f"m{number}") for number in range(13))))
    line = await check_provider("vllm", None, {"base_url": f"{server.url}/v1"})
    assert line.startswith("vllm: answers, and has these models: m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 3 more;")
    assert server.exchanges == []


async def test_an_only_model_is_asked(server: CompatibleServer) -> None:
    server.play(Plan(models=(ModelInfo(MODEL),)))
    assert f"{MODEL}-2026-01-01 answered" in await check_provider("vllm", None, {"base_url": f"{server.url}/v1"})
    assert len(server.exchanges) == 1


@pytest.mark.parametrize("kind", [ProviderAuth, RateLimited, NotFound, Unavailable])
async def test_an_error_keeps_its_kind_and_is_not_tried_again(server: CompatibleServer, kind: type[TgError]) -> None:
    server.play(Plan(fault=Fault.REFUSE, error=kind))
    with pytest.raises(kind, match=f"^vllm: {kind.type}: "):
        await check_provider("vllm", MODEL, {"base_url": f"{server.url}/v1", "tries": 9})
    assert len(server.exchanges) == 1


async def test_the_command_asks_a_provider(server: CompatibleServer) -> None:
    url = f"{server.url}/v1"
    done = await ran("tg-serve", "--check", "--provider", "vllm", "--base-url", url, "--model", MODEL)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert f"text-completion ({MODEL} of vllm)" in lines[0]
    assert lines[-1].startswith(f"vllm: {MODEL}-2026-01-01 answered; first token after ")
    done = await ran("tg-serve", "--check", "--provider", "vllm", "--base-url", url)
    assert done.out.startswith("vllm: answers, and has these models: fake-model, fake-other; to test one")
    assert done.out.count("\n") == 1


async def test_the_command_fails_with_the_word_for_the_error() -> None:
    async with OpenAiChatServer.running() as server:
        options = ["--provider", "openai", "--base-url", f"{server.url}/v1", "-o", "key_variable=", "--model", MODEL]
        done = await ran("tg-serve", "--check", *options)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1].startswith("openai: provider-auth: the provider refused the processor's key")
