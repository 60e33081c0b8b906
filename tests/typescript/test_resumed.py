"""`@tokengrid/client` in Node goes on by itself: its connections are cut at any byte, and it has the one text."""

import asyncio
import json
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.gateway_wire import EVENTS, gateway_wire, response
from tests.flow.kept_streams import open_pair
from tests.flow.test_resumed_streams import TEXT, WORDS, cutting, draw_cuts, say
from tests.typescript.package import install_client, node_or_skip
from tests.until import until
from tg_base.llm import LlmChunk
from tg_schema import TextCompletionRequest

pytestmark = pytest.mark.timeout(180)
PROGRAM: Final = Path(__file__).with_name("resume.mjs")
CUTS: Final = 3


class LeftLlm(CountingLlm):
    """`left` counts the answers that have ended, or were stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        try:
            async for chunk in super().generate_content_stream(request):
                yield chunk
        finally:
            self.left += 1


@pytest.mark.parametrize("transport", ["auto", "sse"])
async def test_a_program_that_is_cut_has_the_one_text(tmp_path: Path, transport: str) -> None:
    node, flags = node_or_skip()
    await asyncio.to_thread(install_client, tmp_path)
    program = shutil.copy(PROGRAM, tmp_path)
    llm = LeftLlm()
    async with open_pair(llm=llm) as it, cutting(it, draw_cuts(CUTS)) as proxy:
        process = await asyncio.create_subprocess_exec(
            node, *flags, program, transport, proxy.url, str(WORDS), stdout=asyncio.subprocess.PIPE
        )
        saying = asyncio.create_task(say(it, WORDS + 1))
        out, _ = await asyncio.wait_for(process.communicate(), 150)
        assert process.returncode == 0
        await saying
        await until(lambda: llm.left == 2)
        assert (len(llm.requests), llm.generated) == (2, WORDS + 1)
        assert 1 <= proxy.cut <= CUTS
    seen = json.loads(out)
    assert (seen["text"], seen["again"], seen["over"]) == (TEXT, TEXT, True)
    # A socket refuses what a stream of events ends with at once.
    assert seen["none"] == ("bad-request" if transport == "auto" else "")
    assert len(seen["retried"]) >= 1


@pytest.mark.parametrize("tells", [True, False], ids=["late", "never"])
async def test_what_is_left_before_its_head_is_stopped_by_its_id(tmp_path: Path, tells: bool) -> None:
    """A gateway that tells no id is waited for only shortly."""
    node, _ = node_or_skip()
    await asyncio.to_thread(install_client, tmp_path)
    program = shutil.copy(PROGRAM.with_name("leave.mjs"), tmp_path)
    asked, left = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if asked.is_set():
            writer.write(response("200 OK", b"{}"))
            return
        asked.set()
        await left.wait()
        if tells:
            writer.write(EVENTS.replace(b"\r\n", b"\r\nX-Stream-Id: ks-1\r\n", 1))
        await reader.read()

    async with gateway_wire(answer) as wire:
        process = await asyncio.create_subprocess_exec(
            node, program, wire.url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        await asyncio.wait_for(asked.wait(), 60)
        process.stdin.write(b"leave\n")
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"left\n"
        left.set()
        assert await asyncio.wait_for(process.wait(), 60) == 0
        stops = [request.partition(b"\r\n")[0] for request in wire.requests[1:]]
        assert stops == ([b"POST /v1/streams/ks-1/cancel HTTP/1.1"] if tells else [])
