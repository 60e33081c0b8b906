"""How commands start and end: what they import, Ctrl-C meanwhile, in the background, where no file can be opened."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.openai_server import OpenAiServer
from tests.fakes.silent_server import SilentServer
from tests.flow.command import SCRIPTS, Ended, ended, out_of, ran, started
from tests.flow.open_gateway import Opened, open_gateway
from tg_client import TgClient

HEAVY = {"openai", "pulsar", "_pulsar", "llama_cpp", "jinja2", "tg_base", "tg_flow", "tg_gateway", "structlog"}


HEAVY |= {"rich", "prompt_toolkit"}


SHOW = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from {package}.start import start_{command}
start_{command}()
"""


async def shown(package: str, command: str, *arguments: str) -> Ended:
    """Run `start_COMMAND` of a package, and have the modules that it has loaded on stderr."""
    return await ran(sys.executable, "-c", SHOW.format(package=package, command=command), *arguments)


INTERRUPTED_IMPORT = """
import os, signal

class Interrupting:
    def __set_name__(self, owner, name):  # what is raised in here, Python 3.11 wraps
        signal.raise_signal(signal.SIGINT)

class Made:
    attribute = Interrupting()

os._exit(7)
"""
# As in a sandbox without /dev/null.
NOTHING_CAN_BE_OPENED = """
import resource
import click
from tg_cli.entry import run

resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
run(click.Command("tg-say", callback=lambda: click.echo("said")))
"""
COMMANDS = [
    *("tg-chat", "tg-invoke-agent", "tg-invoke-llm", "tg-invoke-prompt", "tg-lmtp", "tg-models", "tg-usage"),
    *("tg-pick", "tg-replay", "tg-serve", "tg-serve-model"),
]


@pytest.mark.parametrize("command", COMMANDS)
async def test_ctrl_c_during_the_import_of_a_command_leaves_no_traceback(command: str, tmp_path: Path) -> None:
    # Stands before the library that each command imports first.
    (tmp_path / "click.py").write_text(INTERRUPTED_IMPORT, "utf-8")
    done = await ran(command, PYTHONPATH=str(tmp_path))
    assert (done.code, done.out, done.err) == (130, "", "")


async def test_a_command_that_the_shell_has_ignore_ctrl_c_goes_on(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(INTERRUPTED_IMPORT, "utf-8")
    done = await ran("bash", "-c", f"trap '' INT; exec {SCRIPTS / 'tg-models'}", PYTHONPATH=str(tmp_path))
    assert (done.code, done.err) == (7, "")


async def test_a_command_starts_where_nothing_can_be_opened() -> None:
    done = await ran(sys.executable, "-c", NOTHING_CAN_BE_OPENED)
    assert (done.code, done.out, done.err) == (0, "said\n", "")


@pytest.mark.parametrize(
    ("package", "command"),
    [*(("tg_cli", command) for command in ("llm", "prompt", "agent", "chat", "lmtp", "models")), ("tg_serve", "serve")],
)
async def test_help_imports_almost_nothing(package: str, command: str) -> None:
    done = await shown(package, command, "--help")
    assert "Usage: tg-" in done.out
    loaded = set(done.err.split())
    assert not loaded & (HEAVY | {"aiohttp", "httpx2", "msgspec", "asyncio"})


# One HTTP client is enough: a second one would take as long as all else before the first text.
NEVER = HEAVY | {"aiohttp", "httpx", "urllib3", "yarl"}


@pytest.mark.parametrize(
    ("command", "arguments", "out"),
    [
        ("llm", ["text", "3"], "0 1 2 \n"),
        ("prompt", ["text", "a=1"], 'a="1" \n'),
        # Nobody serves agents here, which is told after all was imported that shows an answer.
        ("agent", ["why?"], ""),
    ],
)
async def test_a_call_imports_the_client_only(opened: Opened, command: str, arguments: list[str], out: str) -> None:
    done = await shown("tg_cli", command, *arguments, "-u", opened.gateway.url)
    assert done.out == out
    loaded = set(done.err.split())
    assert "tg_client.tg_client" in loaded
    assert not loaded & NEVER


SHOW_SERVED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from tg_serve.start import start_serve
start_serve()
"""
CONFIG = """
[models.gpt-fake]
provider = "openai"
options = {{ base_url = "{url}", key_variable = "" }}
[flows.default]
text-completion = {{ model = "gpt-fake" }}
prompt = {{}}
agent = {{}}
"""
NEVER_SERVED = {
    *("anthropic", "boto3", "google.genai", "llama_cpp", "mcp", "mistralai", "numpy", "ollama"),
    *("grpc", "pulsar", "_pulsar", "tg_picker.extproc", "tg_bedrock", "tg_vertexai"),
    # structlog would import it, and click's commands have no use for it either.
    *("rich", "pygments", "prompt_toolkit"),
    # What the SDK's own calls need, and our connections do not.
    "openai.resources",
}


async def test_a_server_imports_what_it_uses(tmp_path: Path) -> None:
    file = tmp_path / "tokengrid.toml"
    async with OpenAiServer.running() as provider:
        file.write_text(CONFIG.format(url=provider.url), "utf-8")
        options = ("--config", str(file), "--port", "0", "--log-level", "warning")
        async with started(sys.executable, "-c", SHOW_SERVED, *options) as process:
            url = (await asyncio.wait_for(out_of(process).readline(), 60)).decode().split()[1]
            async with TgClient(url, retries=0) as client:
                assert (await client.flow().text_completion("", "hi")).text == "Hello €!"
            process.send_signal(signal.SIGTERM)
            done = await ended(process)
    loaded = set(done.err.split())
    assert not loaded & NEVER_SERVED
    # The SDK prepares the requests all the same, and the doors that few ask are there at once.
    assert {"openai", "aiohttp", "tg_doors.lmtp"} <= loaded


IN_THE_BACKGROUND = "trap '' INT; exec \"$@\""
"""How a shell without job control starts `command &`."""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "inner", ["test_cli.py::test_an_interrupt_while_stdin_is_read", "test_embedded.py::test_an_interrupt"]
)
async def test_tests_that_interrupt_children_do_not_hang(inner: str) -> None:
    pytest_again = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"{ROOT}/tests/flow/{inner}")
    command = f"cd {ROOT}; {IN_THE_BACKGROUND}"
    async with started("bash", "-c", command, "bash", *pytest_again, PYTHONWARNINGS="") as process:
        done = await ended(process, within=90)
    assert done.code == 0, done.out


async def test_a_command_in_the_background_is_not_interrupted() -> None:
    async with open_gateway() as opened:
        opened.llm.step = asyncio.Semaphore(1)
        command = (str(SCRIPTS / "tg-invoke-llm"), "", "2", "-u", opened.gateway.url)
        async with started("bash", "-c", IN_THE_BACKGROUND, "bash", *command) as process:
            assert await asyncio.wait_for(out_of(process).readexactly(2), 30) == b"0 "
            process.send_signal(signal.SIGINT)
            opened.llm.step.release()
            done = await ended(process)
    assert (done.code, done.out) == (0, "1 \n")


async def test_a_server_in_the_background_drains() -> None:
    async with started("bash", "-c", IN_THE_BACKGROUND, "bash", str(SCRIPTS / "tg-serve"), "--port", "0") as process:
        assert (await asyncio.wait_for(out_of(process).readline(), 60)).startswith(b"ready: ")
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert done.code == 0


MODULE = """
import socket

connection = socket.create_connection(("127.0.0.1", {port}))
connection.sendall(b"I am being imported")
connection.recv(1)
"""
TOOL = """
[models.m]
provider = "ollama"
[flows.f]
text-completion = { model = "m" }
prompt = {}
agent = { tools = ["hang"] }
[tools.hang]
kind = "python"
options = { function = "hanging:call" }
"""
PROVIDER = """
[models.m]
provider = "hanging:Model"
[flows.f]
text-completion = { model = "m" }
"""


@pytest.mark.parametrize("config", [TOOL, PROVIDER], ids=["tool", "provider"])
async def test_a_signal_ends_a_process_that_imports(tmp_path: Path, config: str) -> None:
    file = tmp_path / "tg.toml"
    file.write_text(config)
    async with SilentServer.running() as server:
        (tmp_path / "hanging.py").write_text(MODULE.format(port=server.url.rpartition(":")[2]))
        arguments = ("--config", str(file), "--port", "0")
        async with started("tg-serve", *arguments, PYTHONPATH=str(tmp_path)) as process:
            await asyncio.wait_for(server.asked.wait(), 60)
            process.send_signal(signal.SIGTERM)
            done = await ended(process, within=20)
    assert (done.code, done.out) == (0, "")
    assert "Traceback" not in done.err


INTERRUPTED_STEP = """
import asyncio, os, signal
from tg_cli.endings import Interrupted
from tg_cli.invocation import run_call

def tell(news):
    if not news.done():
        os.kill(os.getpid(), signal.SIGINT)
        [None for _ in range(1000)]  # Python looks for signals between instructions.
        news.set_result(None)

async def work():
    loop = asyncio.get_running_loop()
    news = loop.create_future()
    loop.call_soon(tell, news)
    await news
    await loop.create_future()

try:
    run_call(work())
except Interrupted:
    print("interrupted")
"""


def test_what_tells_a_result_is_not_interrupted_within() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_STEP], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
