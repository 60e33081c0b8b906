"""No gateway at the default URL, and none asked for: the whole pipeline in the command's own process."""

import asyncio
import json
import signal
import sys

import pytest

from tests.flow.command import Ended, ended, out_of, ran, started
from tests.missing import require_free_port

pytestmark = pytest.mark.model

LLM = "tg-invoke-llm"
NOTICE = (
    "no gateway at http://localhost:8888/; running a tiny demo model (2 million parameters: it streams, but knows "
    "little) in this process (see tg-serve for others)\n"
)


PERMITTED = {"PYTHONWARNINGS": "error,ignore:unclosed file:ResourceWarning"}
"""llama-cpp-python leaves two files open."""


@pytest.fixture(autouse=True)
def nobody_at_the_default_url() -> None:
    require_free_port()


def is_an_answer(done: Ended) -> None:
    assert (done.code, done.err) == (0, NOTICE)
    assert "Pulsar" in done.out
    assert done.out.endswith(".\n")


async def test_the_demo() -> None:
    is_an_answer(await ran(LLM, "be brief", "What is Apache Pulsar?", env=PERMITTED))


async def test_a_chat_and_the_list_of_models() -> None:
    done = await ran("tg-chat", data=b"What is 2 + 3?\n/model\n", env=PERMITTED)
    assert (done.code, done.out, done.err) == (0, "2 + 3 = 5\n", f"{NOTICE}  tinydemo\n")
    done = await ran("tg-models", "--json", env=PERMITTED)
    assert (done.code, done.err) == (0, NOTICE)
    assert json.loads(done.out)["model"] == "tinydemo"


async def test_prompts_of_the_built_in_configuration() -> None:
    is_an_answer(await ran("tg-invoke-prompt", "question", "question=What is Apache Pulsar?", env=PERMITTED))
    done = await ran("tg-invoke-prompt", "extract", "text=Ann lives in Paris.", env=PERMITTED)
    assert {"name", "city"} <= set(json.loads(done.out))


async def test_an_interrupt() -> None:
    async with started(LLM, "", "Tell me a story.", "--json", env=PERMITTED) as process:
        json.loads(await asyncio.wait_for(out_of(process).readline(), 60))
        process.send_signal(signal.SIGINT)
        done = await ended(process)
    assert (done.code, done.err) == (130, NOTICE)


PROGRAM = """
import asyncio
from tg_cli.gateway_choice import open_gateway
from tg_client import TgClient

async def main():
    async with open_gateway(None) as url, TgClient(url, retries=0) as client:
        async with client.socket() as socket:
            print((await socket.flow().text_completion("", "What is Apache Pulsar?")).model)

asyncio.run(main())
"""


async def test_the_same_sdk_talks_to_it() -> None:
    done = await ran(sys.executable, "-c", PROGRAM, env=PERMITTED)
    assert (done.out, done.err) == ("tinydemo\n", NOTICE)


ALONE = """
import asyncio, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tg_serve", "tg_base", "tg_flow", "tg_gateway"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from tg_cli.gateway_choice import open_gateway
from tg_schema import TgError

async def main():
    try:
        async with open_gateway(None):
            print("there is one")
    except TgError as error:
        print(error.message)

asyncio.run(main())
"""


async def test_commands_without_a_server_say_what_to_do() -> None:
    """As where only the commands are installed."""
    done = await ran(sys.executable, "-c", ALONE)
    what_to_do = "name one with -u, or install one that runs here: pip install tokengrid-serve"
    expected = f"no gateway at http://localhost:8888/: {what_to_do}\n"
    assert (done.out, done.err) == (expected, "")
