"""What a whole `tg-serve` has imported by its first answer: that is what a developer waits for."""

import asyncio
import signal
import sys
from pathlib import Path

from tests.fakes.openai_server import OpenAiServer
from tests.flow.command import ended, started
from tg_client import TgClient

SHOW = """
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
NEVER = {
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
        async with started(sys.executable, "-c", SHOW, *options) as process:
            assert process.stdout is not None
            url = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().split()[1]
            async with TgClient(url, retries=0) as client:
                assert (await client.flow().text_completion("", "hi")).text == "Hello €!"
            process.send_signal(signal.SIGTERM)
            done = await ended(process)
    loaded = set(done.err.split())
    assert not loaded & NEVER
    # The SDK prepares the requests all the same, and the doors that few ask are there at once.
    assert {"openai", "aiohttp", "tg_doors.lmtp"} <= loaded
