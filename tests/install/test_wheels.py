"""The wheels in fresh environments outside the tree: the server, the commands, the SDK and its types.

tokengrid-llama stays out: the built-in model has tests of its own, and to compile llama.cpp takes minutes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.install.installation import Installation, build_wheels
from tests.uv_command import ROOT

pytestmark = [pytest.mark.install, pytest.mark.timeout(180)]
SERVERS = ("tg-pick", "tg-serve", "tg-serve-model")
COMMANDS = ("tg-chat", "tg-invoke-agent", "tg-invoke-llm", "tg-invoke-prompt", "tg-lmtp", "tg-models")
EXAMPLE = ROOT / "examples" / "agent"
PROGRAM = Path(__file__).parent / "sdk_program.py"
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
    """Every part but tokengrid-llama, without an extra."""
    parts = [wheel for name, wheel in wheels.items() if name != "tokengrid-llama"]
    return Installation(tmp_path_factory.mktemp("server"), parts)


@pytest.fixture(scope="module")
def client(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """tokengrid-cli, and what it requires."""
    parts = [wheels["tokengrid-cli"], wheels["tokengrid-schema"]]
    return Installation(tmp_path_factory.mktemp("client"), parts)


@contextmanager
def serving(server: Installation) -> Iterator[str]:
    """The URL of a gateway with a model from a file that is on PYTHONPATH."""
    (server.home / "tokengrid.toml").write_text(CONFIG, "utf-8")
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
        told = f"{HELPLESS}calculator {{'expression': '2 * 21'}}\nIt is 42.True\n"
        assert (program.code, program.out, program.err) == (0, told, "")


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


def test_commands_say_what_to_install_for_a_server(client: Installation) -> None:
    told = client.run("python", "-c", NO_GATEWAY)
    sentence = 'name one with -u, or install one that runs here: pip install "tokengrid-serve[demo]"'
    assert told.err.endswith(f"no gateway at http://localhost:8888/: {sentence}\n")


@pytest.mark.parametrize(
    ("arguments", "install"),
    [
        ((), "tokengrid-serve[llama]"),
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


@pytest.mark.parametrize("more", [(), ("--model", "some")])
def test_a_check_names_the_missing_package_before_the_missing_key(server: Installation, more: tuple[str, ...]) -> None:
    told = server.run("tg-serve", "--check", "--provider", "openai", *more)
    assert (told.code, told.out) == (1, "")
    assert told.err.endswith('needs a package that is not installed; run: pip install "tokengrid-flow[openai]"\n')
    assert told.err.count("\n") == 1


def test_the_pickers_missing_package_is_a_sentence(server: Installation) -> None:
    told = server.run("tg-pick", "--config", "pick.toml")
    assert (told.code, told.out) == (1, "")
    assert (
        told.err == 'tg-pick: it needs a package that is not installed; run: pip install "tokengrid-gateway[envoy]"\n'
    )
