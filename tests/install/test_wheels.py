"""The wheels in fresh environments outside the tree: the server, the commands, the SDK and its types.

Its extra `cpp` stays out: llama.cpp has tests of its own, and to compile it takes minutes.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.fakes import parley
from tests.fakes.openai_transcript import done, event, finish_event
from tests.fakes.threaded_server import saying
from tests.install.installation import Installation, build_wheels
from tests.npm_package import npm_package_or_skip
from tests.uv_command import ROOT

pytestmark = [pytest.mark.install, pytest.mark.timeout(180)]
SERVERS = ("tg-pick", "tg-serve", "tg-serve-model")
COMMANDS = (
    *("tg-chat", "tg-invoke-agent", "tg-invoke-llm", "tg-invoke-prompt", "tg-lmtp", "tg-models"),
    *("tg-replay", "tg-top", "tg-usage"),
)
EXAMPLE = ROOT / "examples" / "agent"
PROGRAM = Path(__file__).parent / "sdk_program.py"
PYRIGHT_VERSION = "1.1.414"
CONFIG = """
[models.scripted]
provider = "scripted_model:ScriptedModel"

[flows.default]
text-completion = { model = "scripted" }
prompt = {}
agent = {}

[tools.calculator]
kind = "python"
options = { function = "farm_tools:calculator" }

[prompts.templates.question]
prompt = "{{ question }}"
"""
HELPLESS = 'Final Answer: I can only search the notes for a "quoted text", and calculate.\n'
FORMATTER = """
from importlib.metadata import entry_points

(point,) = entry_points(group="tokengrid.lmi_input_formatters")
print(f"{point.load().__module__}.{point.load().__name__}")
"""
NO_GATEWAY = """
import asyncio
from tg_cli.gateway_choice import open_gateway

async def main():
    async with open_gateway(None):
        pass

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_wheels(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def server(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Every part but the picker, without an extra."""
    parts = [wheel for name, wheel in wheels.items() if name != "tokengrid-picker"]
    return Installation(tmp_path_factory.mktemp("server"), parts)


@pytest.fixture(scope="module")
def road(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """tokengrid-serve without an extra."""
    names = ("schema", "base", "flow", "gateway", "llama", "cli", "serve")
    return Installation(tmp_path_factory.mktemp("road"), [wheels[f"tokengrid-{name}"] for name in names])


@pytest.fixture(scope="module")
def client(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """tokengrid-cli, and what it requires."""
    parts = [wheels["tokengrid-cli"], wheels["tokengrid-schema"]]
    return Installation(tmp_path_factory.mktemp("client"), parts)


@contextmanager
def serving(server: Installation, config: str = CONFIG) -> Iterator[str]:
    """The URL of a gateway with a model from a file that is on PYTHONPATH."""
    (server.home / "tokengrid.toml").write_text(config, "utf-8")
    for name in ("scripted_model.py", "farm_tools.py"):
        shutil.copy(EXAMPLE / name, server.home / name)
    options = ("--config", "tokengrid.toml", "--port", "0", "--log-level", "error")
    with server.start("tg-serve", *options, PYTHONPATH=str(server.home)) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            assert ready.startswith("ready: http://"), process.communicate()
            yield ready.split()[1]
        finally:
            process.terminate()
            assert process.wait(30) == 0


def test_all_wheels_together_have_at_most_12_megabytes(wheels: dict[str, Path]) -> None:
    """The demo model is among them."""
    sizes = {name: wheel.stat().st_size for name, wheel in wheels.items()}
    assert sizes["tokengrid-llama"] > 1e6
    assert sum(sizes.values()) <= 12e6, sizes


def test_the_server_answers_commands_and_programs_from_another_environment(
    server: Installation, client: Installation
) -> None:
    with serving(server) as url:
        llm = client.run("tg-invoke-llm", "-u", url, "Be brief.", "Who are you?")
        assert (llm.code, llm.out, llm.err) == (0, HELPLESS, "")
        prompt = client.run("tg-invoke-prompt", "-u", url, "question", "question=Who are you?")
        assert (prompt.code, prompt.out, prompt.err) == (0, HELPLESS, "")
        agent = client.run("tg-invoke-agent", "-u", url, "What is 2 * 21?")
        assert (agent.code, agent.out, agent.err) == (0, "It is 42.\n", "")
        program = client.run("python", str(PROGRAM), url)
        text = HELPLESS.removesuffix("\n")
        told = f"{text} True ['scripted'] None\ncalculator {{'expression': '2 * 21'}}\nIt is 42.True\n"
        assert (program.code, program.out, program.err) == (0, told, "")
        with urlopen(Request(url, headers={"Accept": "text/html"}), timeout=30) as page:
            assert b'src="page/page.js"' in page.read()
        # In the tree it is a link to the TypeScript client.
        with urlopen(f"{url}page/tokengrid.js", timeout=30) as file:
            assert b"class TgClient" in file.read()


def ask(url: str, path: str, body: object) -> tuple[int, Any]:
    request = Request(url + path, json.dumps(body).encode())
    try:
        with urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def chat(text: str) -> bytes:
    """A model server's answer."""
    body = event("fleet", {"content": text}) + finish_event("fleet", "stop") + done()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


def test_a_package_of_somebody_brings_a_door(road: Installation, tmp_path: Path) -> None:
    """docs/adding-a-dialect.md's, installed beside the server. The doors of the extra are not there, and it says so."""
    page = (ROOT / "docs" / "adding-a-dialect.md").read_text("utf-8")
    project = re.search(r"```toml\n(\[project\].*?)```", page, re.DOTALL)
    assert project is not None
    (tmp_path / "pyproject.toml").write_text(project[1], "utf-8")
    shutil.copy(parley.__file__, tmp_path / "parley.py")
    road.install(tmp_path)
    table = "[gateway.parley]\nlongest = 12\n"
    with serving(road, CONFIG + table) as url:
        status, talk = ask(url, "parley/talks", {"say": "Who are you?"})
        assert (status, talk["speech"] + "\n") == (200, HELPLESS)
        assert ask(url, "parley/talks", {"say": "Who are you all?"})[1]["fault"] == "say at most 12 characters"
        status, refused = ask(url, "generate", {"inputs": "Who are you?"})
        assert (status, refused["error"]["message"].endswith('pip install "tokengrid-serve[doors]"')) == (404, True)
    (road.home / "tokengrid.toml").write_text(CONFIG + table.replace("12", "0") + "[gateway.lmi]\ntgi_compat = true\n")
    checked = road.run("tg-serve", "--check", "--config", "tokengrid.toml", PYTHONPATH=str(road.home))
    assert "gateway.parley.longest must be a whole number >= 1" in checked.err
    assert 'unknown field "lmi" in gateway; ' in checked.err
    assert "; doors with a table here: parley\n" in checked.err


def test_a_package_of_somebody_brings_formatters(server: Installation, tmp_path: Path) -> None:
    """examples/lmi."""
    server.install(shutil.copytree(ROOT / "examples" / "lmi", tmp_path / "lmi"))
    found = server.run("python", "-c", FORMATTER)
    assert (found.code, found.out, found.err) == (0, "house_formats.read_question\n", "")


def test_a_package_of_somebody_brings_a_part_of_each_kind(
    road: Installation, client: Installation, wheels: dict[str, Path], tmp_path: Path
) -> None:
    """docs/extending.md's, installed beside the server and the picker."""
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    code, project, config = re.findall(r"```(?:python|toml)\n(.*?)```", page, re.DOTALL)
    (tmp_path / "house_parts.py").write_text(code, "utf-8")
    (tmp_path / "pyproject.toml").write_text(project, "utf-8")
    road.install(wheels["tokengrid-picker"], tmp_path)
    with saying(chat("first"), stays=True) as first, saying(chat("other"), stays=True) as second:
        own = config.replace("127.0.0.1:8001", first.authority).replace("127.0.0.1:8002", second.authority)
        with serving(road, own.replace('"fill-first"', '"fill-first", scraped = false')) as url:
            for number in range(6):
                status, answer = ask(url, "api/v1/flow/fleet/service/text-completion", {"prompt": f"What is {number}?"})
                assert (status, answer.get("response")) == (200, "first"), answer
    with serving(road, config) as url:
        llm = client.run("tg-invoke-llm", "-u", url, "", "Who are you?")
        assert (llm.code, llm.out, llm.err) == (0, "Who are you?\n", "")
        agent = client.run("tg-invoke-agent", "-u", url, "Who are you?")
        assert (agent.code, agent.out, agent.err) == (0, "Question: Who are you?\n", "")
        asked = {"prompt": "Who are you?"}
        assert ask(url, "api/v1/flow/default/service/repeat", asked)[1]["response"] == "Who are you?"
    wrong = config.replace('"slow:', '"slwo:').replace("repeat", "repaet")
    wrong = wrong.replace('"fill-first"', '"fil-first"').replace('"brief"', '"breif"')
    (road.home / "tokengrid.toml").write_text(wrong, "utf-8")
    checked = road.run("tg-serve", "--check", "--config", "tokengrid.toml")
    assert checked.code == 1
    assert 'there is no bus "slwo"; known are memory, pulsar, slow; write' in checked.err
    assert 'there is no policy "fil-first"; known are fill-first, least-request, predicted-wait, round-' in checked.err
    assert 'there is no service "repaet"; did you mean "repeat"?' in checked.err
    assert 'there is no pattern "breif"; known are brief, plan-then-execute, react, supervisor, and any' in checked.err


def test_the_types_of_the_sdk_are_there(client: Installation) -> None:
    """The type checker is the tree's, and reads the installed packages alone."""
    strict = ("--strict", "--config-file", os.devnull, "--cache-dir", str(client.home / "types"))
    python = ("--python-executable", str(client.bin / "python"))
    shutil.copy(PROGRAM, client.home / "program.py")
    command = [sys.executable, "-m", "mypy", *strict, *python, "program.py"]
    done = subprocess.run(command, cwd=client.home, capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n"), done.stdout
    wrong = client.home / "wrong.py"
    wrong.write_text("from tg_client import TgClient\n\nTgClient(1)\n", "utf-8")
    done = subprocess.run([*command[:-1], wrong], cwd=client.home, capture_output=True, text=True, check=False)
    assert 'incompatible type "int"' in done.stdout


@pytest.mark.timeout(700)
def test_pyright_finds_the_types_of_the_sdk(client: Installation) -> None:
    (client.home / "mistaken.py").write_text("from tg_client import TgClient\n\nTgClient(1)\n", "utf-8")
    _, package = npm_package_or_skip("pyright", PYRIGHT_VERSION)
    pyright = (package / "node_modules/.bin/pyright", "--pythonpath", client.bin / "python", "--project", client.home)
    shutil.copy(PROGRAM, client.home / "program.py")
    found = []
    for program in ("program.py", "mistaken.py"):
        settings = {"typeCheckingMode": "strict", "include": [program]}
        (client.home / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
        done = subprocess.run(pyright, cwd=client.home, capture_output=True, text=True, timeout=150, check=False)
        found.append(done.stdout.splitlines()[-1])
    assert found == ["0 errors, 0 warnings, 0 informations", "1 error, 0 warnings, 0 informations"]
    assert "(reportArgumentType)" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_need_no_server(client: Installation, command: str) -> None:
    told = client.run(command, "--version")
    assert (told.code, told.out.partition(" ")[0], told.err) == (0, command, "")
    assert client.run(command, "--help").code == 0
    assert not (client.bin / "tg-serve").exists()


@pytest.mark.parametrize("command", SERVERS)
def test_servers_tell_their_options_without_any_extra(server: Installation, command: str) -> None:
    told = server.run(command, "--version")
    assert (told.code, told.out.partition(" ")[0], told.err) == (0, command, "")
    assert server.run(command, "--help").code == 0


def test_a_command_answers_without_any_extra(road: Installation) -> None:
    told = road.run("tg-invoke-llm", "You are a helpful assistant.", "Count to 5.")
    assert (told.code, told.out) == (0, "1, 2, 3, 4, 5\n"), told.err


def test_commands_say_what_to_install_for_a_server(client: Installation) -> None:
    told = client.run("python", "-c", NO_GATEWAY)
    sentence = "name one with -u, or install one that runs here: pip install tokengrid-serve"
    assert told.err.endswith(f"no gateway at http://localhost:8888/: {sentence}\n")


@pytest.mark.parametrize(
    ("arguments", "install"),
    [
        (("--bus", "pulsar://127.0.0.1:9"), "tokengrid-base[pulsar]"),
        (("--provider", "openai", "--model", "some"), "tokengrid-flow[openai]"),
        (("--provider", "cohere", "--model", "some"), "tokengrid-flow[cohere]"),
    ],
)
def test_a_missing_package_is_a_sentence(server: Installation, arguments: tuple[str, ...], install: str) -> None:
    keys = {"OPENAI_API_KEY": "some", "COHERE_API_KEY": "some"}
    told = server.run("tg-serve", *arguments, "--port", "0", "--log-level", "error", **keys)
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("tg-serve: ")
    assert told.err.endswith(f'needs a package that is not installed; run: pip install "{install}"\n')
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_the_first_file_without_llama_cpp_is_told_what_to_compile(server: Installation, check: tuple[str, ...]) -> None:
    """The command that it prints can be pasted into a shell, and compiles only what is loaded."""
    told = server.run("tg-serve", "--model", "mine.gguf", "--port", "0", "--log-level", "error", *check)
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)
    said, _, command = told.err.partition("; run: ")
    assert said.endswith(
        'provider "llama-cpp" needs a package that is not installed, and that pip compiles: '
        "with a C++ compiler, in about two minutes"
    )
    setting, *pip = shlex.split(command)
    assert pip == ["pip", "install", "tokengrid-llama[cpp]"]
    flags, _, file = setting.rpartition("=")
    assert flags == "CMAKE_ARGS=-DCMAKE_PROJECT_llama.cpp_INCLUDE"
    assert Path(file).is_relative_to(server.home)
    assert "\nset(LLAMA_BUILD_COMMON OFF)\n" in Path(file).read_text("utf-8")


@pytest.mark.parametrize("more", [(), ("--model", "some")])
def test_a_check_names_the_missing_package_before_the_missing_key(server: Installation, more: tuple[str, ...]) -> None:
    told = server.run("tg-serve", "--check", "--provider", "openai", *more)
    assert (told.code, told.out) == (1, "")
    assert told.err.endswith('needs a package that is not installed; run: pip install "tokengrid-flow[openai]"\n')
    assert told.err.count("\n") == 1


def test_the_pickers_missing_package_is_a_sentence(server: Installation) -> None:
    told = server.run("tg-pick", "--config", "pick.toml")
    assert (told.code, told.out) == (1, "")
    assert told.err == 'tg-pick: the picker is not installed; run: pip install "tokengrid-serve[picker]"\n'
