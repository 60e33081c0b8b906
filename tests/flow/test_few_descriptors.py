"""`ulimit -n` -> what serves: too few to begin with end a command, and too few later stop a processor for a while."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.openai_server import OpenAiServer
from tests.fakes.typed_clients import LlmClient
from tests.flow.command import SCRIPTS, ran
from tests.flow.open_gateway import QUICK
from tests.until import until
from tg_base.bus.memory import MemoryBus
from tg_base.client import Requestor
from tg_base.protocol import Route
from tg_base.server import Processor
from tg_flow.providers.openai import OpenAiCompatible
from tg_flow.providers.openai.provider import OpenAiOptions
from tg_schema import TEXT_COMPLETION
from tg_schema.errors import Unavailable
from tg_schema.topics import Topics

PICK = """
[[pools]]
servers = ["127.0.0.1:1"]
"""
COMMANDS = [("tg-serve", "--port", "0"), ("tg-serve-model", "--port", "0"), ("tg-pick", "--config", "pick.toml")]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
async def test_a_process_that_may_open_too_few_files_says_how_many_it_needs(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    config = tmp_path / "pick.toml"
    config.write_text(PICK, "utf-8")
    name, *words = (str(config) if word == config.name else word for word in command)
    done = await ran("bash", "-c", f'ulimit -n 12; exec "{SCRIPTS}/{name}" "$@"', name, *words)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"{name}: this process may have 12 files open, and needs 64, besides one for each connection: "
        "raise the limit before you start it, as with ulimit -n 1024\n"
    )


LIMITED = Topics()
ROUTE = Route("f", TEXT_COMPLETION, LIMITED.request("f", "t"), LIMITED.response("f", "t"))


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process may open nothing more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_processor_without_descriptors_says_so_and_takes_no_request(openai_server: OpenAiServer) -> None:
    bus = MemoryBus()
    options = OpenAiOptions(base_url=openai_server.url, key_variable="", tries=1, upstream_model=openai_server.model)
    async with (
        Requestor(bus, LIMITED, timing=QUICK) as requestor,
        Processor(bus, LIMITED, await OpenAiCompatible.open("ours", options), (ROUTE,), timing=QUICK),
    ):
        client = LlmClient(requestor, ROUTE)
        await until(lambda: requestor.presence.serving(ROUTE.request))
        with no_descriptors():
            with pytest.raises(Unavailable, match=r"EMFILE.*ulimit -n"):
                await client.request("", "hello")
            await until(lambda: not requestor.presence.serving(ROUTE.request))
        await until(lambda: requestor.presence.serving(ROUTE.request))
        assert await client.request("", "hello")
    await bus.aclose()
