"""A service of one's own: one file and a row, through configuration, check, start, bus, and the gateway's doors."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.echo_service import ECHO, EchoRequest
from tests.flow.command import out_of, ran, started
from tests.installed_package import install_package
from tg_base.config import ConfigWatcher
from tg_client import TgClient
from tg_schema import TgError, decode
from tg_schema.errors import BadRequest
from tg_serve.launcher import add_services, inspect, launch
from tg_serve.options import PARTS, ServeOptions

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-service.md"
CODE = Path(__file__).parents[1] / "fakes" / "echo_service.py"
WITH_ECHO = {"echo": "tests.fakes.echo_service:EchoKind"}
FILE = """[gateway]
port = 0
[flows.default]
echo = { times = 2 }
[flows.polite]
echo = { greeting = "Hello!" }
"""


def order(folder: Path, text: str = FILE) -> ServeOptions:
    file = folder / "tg.toml"
    file.write_text(text)
    return ServeOptions(file=file, services=WITH_ECHO)


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The gateway's URL."""
    async with launch(order(folder)) as (_, url):
        assert url is not None
        yield url


async def test_it_answers_whole_and_streamed_over_http(tmp_path: Path) -> None:
    async with served(tmp_path) as url, aiohttp.ClientSession(url) as http:
        path = "api/v1/flow/default/service/echo"
        async with http.post(path, json={"text": "a b"}) as answer:
            assert (answer.status, await answer.json()) == (200, {"text": "a a b b ", "end_of_stream": True})
        async with http.post(path, json={"text": "a b", "streaming": True}) as answer:
            assert answer.content_type == "text/event-stream"
            events = [decode(dict[str, Any], line[6:]) async for line in answer.content if line.startswith(b"data: ")]
        assert "".join(event.get("text", "") for event in events) == "a a b b "
        assert [event["end_of_stream"] for event in events] == [False] * (len(events) - 1) + [True]
        async with http.post(path, json={}) as answer:
            assert (answer.status, (await answer.json())["error"]["type"]) == (400, "bad-request")
        async with http.post(path, json={"texts": "a"}) as answer:
            assert (await answer.json())["error"]["message"].endswith("did you mean `text`?")


@pytest.mark.parametrize("transport", ["http", "socket"])
async def test_it_answers_the_sdk(tmp_path: Path, transport: str) -> None:
    async with served(tmp_path) as url, TgClient(url, retries=0) as client, client.socket() as socket:
        asker = client if transport == "http" else socket
        async with asker.flow("polite").records(ECHO, EchoRequest("you", streaming=True)) as records:
            assert "".join([record.text or "" async for record in records]) == "Hello! you "


async def test_the_check_says_what_would_run(tmp_path: Path) -> None:
    said, findings = await inspect(order(tmp_path))
    assert findings == []
    assert "echo (default, polite)" in said


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("times", "tmies", 4, 'unknown field "tmies" in flows.default.echo; did you mean "times"?'),
        ("times = 2", "times = 20", 4, "flows.default.echo.times must be a whole number <= 10"),
        ('"Hello!"', '"Hello\\nyou"', 6, "a greeting has one line"),
        ("echo = {", "eccho = {", 4, 'there is no service "eccho"; did you mean "echo"?'),
        ("echo = {", "prompt = {", 4, "only echo has times; remove it here"),
        ("times = 2", 'model = "m"', 4, "only text-completion and agent have a model; remove it"),
    ],
)
async def test_a_mistake_is_named_by_a_check_and_by_a_start(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    asked = order(tmp_path, FILE.replace(old, new, 1))
    _, findings = await inspect(asked)
    assert findings[0].startswith(f"{asked.file}, line {line}: ")
    assert words in findings[0]
    with pytest.raises(TgError) as refused:
        async with launch(asked):
            pass
    assert refused.value.message == findings[0]


def test_a_service_that_nobody_listed_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "tg.toml"
    file.write_text(FILE)
    with pytest.raises(BadRequest, match='there is no service "echo"; known are agent, jobs, prompt, text-completion'):
        ConfigWatcher(file)


def test_the_page_shows_this_code() -> None:
    assert block("echo_service.py") == CODE.read_text("utf-8")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files of the page, on the path, and a model that shouts."""
    for name in ("echo_service.py", "digest_service.py", "echo.toml", "ask_echo.py"):
        (tmp_path / name).write_text(block(name), "utf-8")
    (tmp_path / "shouting.py").write_text(SHOUTING)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in ("echo_service", "digest_service", "shouting"):
        sys.modules.pop(name, None)


SHOUTING = """
from tg_base.llm import LlmChunk, LlmService

class Shouting(LlmService):
    async def generate_content(self, request):
        return LlmChunk(request.turns[-1].text.upper(), finish_reason="stop")
"""
DIGESTING = """[gateway]
port = 0
[services]
digest = "digest_service:DigestKind"
[models.m]
provider = "shouting:Shouting"
[flows.default]
text-completion = { model = "m" }
digest = {}
"""


async def test_tg_serve_runs_it_as_the_page_says(page: Path) -> None:
    """Unmodified, in a process of its own."""
    path = str(page)
    (serving, ready), (asking, said) = re.findall(r"```console\n\$ (.*)\n(.*)\n```", PAGE.read_text("utf-8"))
    assert serving == "PYTHONPATH=. tg-serve --config echo.toml"
    async with started("tg-serve", "--config", f"{path}/echo.toml", PYTHONPATH=path) as process:
        line = (await asyncio.wait_for(out_of(process).readline(), 60)).decode()
        assert re.fullmatch(re.escape(ready).replace(re.escape("..."), ".*"), line.strip())
        url = line.split()[1]
        done = await ran(sys.executable, f"{path}/{asking.split()[1]}", TOKENGRID_URL=url, PYTHONPATH=path)
    assert (done.code, done.out.strip(), done.err) == (0, said, "")


async def test_a_service_of_the_page_asks_another_one(page: Path) -> None:
    file = page / "digest.toml"
    file.write_text(DIGESTING)
    async with launch(ServeOptions(file=file)) as (_, url), TgClient(str(url), retries=0) as client:
        spec = import_module("digest_service").DIGEST
        async with client.flow("default").records(spec, EchoRequest("a b", streaming=True)) as records:
            assert "".join([record.text or "" async for record in records]) == "A B"
    file.write_text(DIGESTING.replace('text-completion = { model = "m" }\n', ""))
    _, findings = await inspect(ServeOptions(file=file))
    assert findings == [f'{file}, line 8: flow "default" has no text-completion to digest with; add it']


@pytest.fixture
def installed(page: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's echo as a package has it, and three that cannot be used."""
    (page / "needs_an_sdk.py").write_text("import an_sdk_that_nobody_has\n")
    (page / "broken.py").write_text("1 / 0\n")
    points = "echo = echo_service:EchoKind\nneedy = needs_an_sdk:Kind [sdk]\nbroken = broken:Kind\nodd = json:loads\n"
    install_package(page / "site", monkeypatch, "tokengrid-zoo", f"[tokengrid.services]\n{points}")
    file = page / "tg.toml"
    file.write_text("[gateway]\nport = 0\n[flows.default]\necho = {}\n")
    return file


async def test_a_service_of_an_installed_package(installed: Path) -> None:
    """A flow's table is all: only what is bound or named is imported, so the three others are no obstacle."""
    assert add_services(ServeOptions()).parts == PARTS
    assert "echo_service" not in sys.modules
    async with (
        launch(ServeOptions(file=installed)) as (_, url),
        TgClient(str(url), retries=0) as client,
        client.flow("default").records(ECHO, EchoRequest("a b", streaming=True)) as records,
    ):
        assert "".join([record.text or "" async for record in records]) == "a b "
    assert "needs_an_sdk" not in sys.modules
    order = add_services(ServeOptions(file=installed, only=("echo",), bus="pulsar://127.0.0.1:9"))
    assert (order.parts, add_services(order)) == (("echo",), order)


def rewrite(file: Path, old: str, new: str) -> None:
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ("ecko", 'there is no service "ecko"; did you mean "echo"?'),
        ("needy", 'the service "needy" needs a package that is not installed; run: pip install "tokengrid-zoo[sdk]"'),
        ("broken", '"broken:Kind" cannot be imported: the log says why'),
        ("odd", '"json:loads" is no "module:Class" of a subclass of tg_base.server.ServiceKind'),
    ],
)
async def test_an_installed_service_that_cannot_be_used_is_named(installed: Path, service: str, words: str) -> None:
    file = ServeOptions(file=installed)
    rewrite(installed, "echo", service)
    _, findings = await inspect(file)
    assert findings[0] == f"{installed}, line 4: {words}"
    with pytest.raises(TgError) as refused:
        async with launch(file):
            pass
    assert refused.value.message == findings[0]


async def test_a_service_that_two_packages_offer_is_refused(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = "[tokengrid.services]\necho = echo_service:EchoKind\n"
    install_package(installed.parent / "other", monkeypatch, "tokengrid-barn", points)
    with pytest.raises(BadRequest, match='line 4: several packages have a service "echo": tokengrid-barn, tokengrid-z'):
        add_services(ServeOptions(file=installed))


def test_an_edit_that_binds_another_service_asks_for_a_restart(installed: Path) -> None:
    """Only a start imports it."""
    with pytest.raises(BadRequest, match='line 4: the process was started without the service "echo"; restart it'):
        ConfigWatcher(installed)


async def test_a_kind_within_a_class(page: Path) -> None:
    (page / "shelf.py").write_text("import echo_service\nclass Shelf:\n    Kind = echo_service.EchoKind\n")
    file = page / "tg.toml"
    file.write_text('[gateway]\nport = 0\n[services]\necho = "shelf:Shelf.Kind"\n[flows.default]\necho = {}\n')
    async with launch(ServeOptions(file=file)) as (served, _):
        assert "echo" in str(served)


async def test_a_part_of_it_alone(page: Path) -> None:
    order = ServeOptions(file=page / "echo.toml", only=("echo",), bus="pulsar://127.0.0.1:9")
    assert add_services(order).parts == ("echo",)
    with pytest.raises(BadRequest, match=r'there is no part "ehco"; did you mean "echo"\?'):
        add_services(ServeOptions(file=page / "echo.toml", only=("ehco",)))


@pytest.mark.parametrize(
    ("services", "words"),
    [
        (
            'echo = "echo_servic:EchoKind"',
            'the distribution that has the module "echo_servic", or put its folder on PYTHONPATH',
        ),
        ('echo = "broken:Kind"', "cannot be imported: the log says why"),
        ('echo = "echo_service:EchoKinds"', 'is no "module:Class" of a subclass of tg_base.server.ServiceKind'),
        (
            'echo = "echo_service"',
            'there is no service "echo_service"; known are agent, jobs, prompt, text-completion, usage, and any',
        ),
        ('ecco = "echo_service:EchoKind"', 'the service of echo_service:EchoKind is called "echo"; give it that name'),
        ('agent = "echo_service:EchoKind"', "agent is a part of ours; give the service another name"),
        ("echo = 3", "services.echo must be text, not a whole number"),
    ],
)
async def test_a_wrong_line_is_named_by_a_check_and_by_a_start(page: Path, services: str, words: str) -> None:
    (page / "broken.py").write_text("1 / 0\n")
    file = page / "tg.toml"
    file.write_text(f"[gateway]\nport = 0\n[services]\n{services}\n[flows.default]\n")
    _, findings = await inspect(ServeOptions(file=file))
    assert findings[0].startswith(f"{file}, line 4: ")
    assert words in findings[0]
    with pytest.raises(TgError) as refused:
        async with launch(ServeOptions(file=file)):
            pass
    assert refused.value.message == findings[0]


def test_the_tables_that_the_page_names_are_there() -> None:
    rows = re.findall(r"^\| `(\w+)` in `([\w/.]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 3
    for table, file in rows:
        assert re.search(rf"^{table}\b", (PAGE.parents[1] / file).read_text("utf-8"), re.MULTILINE), file


def block(name: str) -> str:
    """What the page tells to put into a file."""
    opened = rf"into `{re.escape(name)}`:\n(?:\n<!--[^\n]*-->)?\n```\w+\n"
    found = re.search(rf"{opened}(.*?)```\n", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]
