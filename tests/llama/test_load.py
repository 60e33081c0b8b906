"""A model that is no longer wanted while it is fetched or loaded: nothing waits for it, and nothing of it stays."""

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from tests.fakes.silent_server import SilentServer
from tests.flow.command import ended, started
from tests.until import until
from tg_llama.models import DEMO_MODEL
from tg_llama.native.model import Model
from tg_llama.native.model_load import ModelLoad
from tg_llama.options import LlamaCppOptions
from tg_llama.provider import LlamaCpp
from tg_schema.errors import Unavailable

pytestmark = pytest.mark.model

FOR_EVER_SECONDS = "600"


@pytest.mark.parametrize(
    ("more", "number", "code"), [((), signal.SIGTERM, 0), ((), signal.SIGINT, 0), (("--check",), signal.SIGINT, 130)]
)
async def test_a_signal_ends_a_server_whose_model_is_being_fetched(
    tmp_path: Path, more: tuple[str, ...], number: int, code: int
) -> None:
    hub = {"HF_HOME": str(tmp_path), "HF_HUB_ETAG_TIMEOUT": FOR_EVER_SECONDS, "HF_HUB_DISABLE_XET": "1"}
    model = ("--model", "m", "--provider", "llama-cpp", "-o", "path=hf:owner/name/model.gguf", "--port", "0")
    async with (
        SilentServer.running() as server,
        started("tg-serve", *model, *more, env=hub, HF_ENDPOINT=server.url) as process,
    ):
        await asyncio.wait_for(server.asked.wait(), 60)
        process.send_signal(number)
        done = await ended(process, within=20)
    assert (done.code, done.out) == (code, "")
    assert "Traceback" not in done.err


def test_a_load_that_is_aborted_ends_and_says_so() -> None:
    load = ModelLoad()
    load.abort()
    with pytest.raises(Unavailable, match="aborted"):
        Model(DEMO_MODEL, load=load)


async def test_an_opening_that_is_cancelled_keeps_no_engine_and_no_thread() -> None:
    before = threading.enumerate()
    opening = asyncio.create_task(LlamaCpp.open("tinydemo", LlamaCppOptions()))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    await until(
        lambda: not {"load tinydemo", "llama-engine"} & {one.name for one in threading.enumerate() if one not in before}
    )
