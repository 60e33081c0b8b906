"""`@tokengrid/client`, packed and installed, in Node: over a WebSocket and over events, before a real gateway."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tests.flow.open_gateway import open_gateway
from tests.flow.test_gateway_auth import LOCKED, TOKEN
from tests.typescript.package import install_client, node_or_skip
from tg_base.llm import LlmChunk, ProviderOptions
from tg_schema import TextCompletionRequest, ToolCallDelta
from tg_schema.errors import IncompleteStream, RateLimited

pytestmark = pytest.mark.timeout(120)
ALL = (
    LlmChunk(reasoning="Hm", signature="s"),
    LlmChunk("It "),
    LlmChunk("is."),
    LlmChunk(tool_calls=(ToolCallDelta(0, "c", "look", '{"a":'), ToolCallDelta(0, arguments=" 1}"))),
    LlmChunk(in_token=3, out_token=5, finish_reason="tool_calls"),
)


class WordLlm(CountingLlm):
    """Answers as the prompt says; `left` counts the endless answers that were left."""

    def __init__(self) -> None:
        super().__init__(options=ProviderOptions(tries=1))
        self.left = asyncio.Semaphore(0)
        self.busy = 1

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        match request.prompt:
            case "endless" | "once" | "silent" as word:
                try:
                    if word == "once":
                        yield LlmChunk("on")
                    while word == "endless":
                        yield LlmChunk("on and ")
                        await asyncio.sleep(0.001)
                    await asyncio.Event().wait()
                finally:
                    self.left.release()
            case "busy":
                self.busy += 1
                if self.busy % 2 == 0:
                    raise RateLimited("later", retry_after=0.5)
                yield LlmChunk("free", finish_reason="stop")
            case "half":
                yield LlmChunk("half")
                raise IncompleteStream("it broke off")
            case "all":
                for chunk in ALL:
                    yield chunk
            case word:
                yield LlmChunk(word or "", finish_reason="stop")


async def ask(folder: Path, transport: str) -> dict[str, Any]:
    """What ask.mjs prints."""
    node, flags = node_or_skip()
    installed = await asyncio.to_thread(install_client, folder)
    llm = WordLlm()
    async with open_gateway(LOCKED, llm=llm) as it:
        process = await asyncio.create_subprocess_exec(
            node, *flags, installed, transport, it.gateway.url, TOKEN, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0
        # Endless twice, once, silent: each is left down to the model.
        for _ in range(4):
            await asyncio.wait_for(llm.left.acquire(), 10)
    seen: dict[str, Any] = json.loads(out)
    return seen


@pytest.mark.parametrize("transport", ["auto", "sse"])
async def test_a_program_asks_stops_and_retries(tmp_path: Path, transport: str) -> None:
    seen = await ask(tmp_path, transport)
    assert seen["transports"] == ["socket" if transport == "auto" else "sse"]
    assert seen["texts"] == ["one", "two"]
    turn = {
        "role": "assistant",
        "content": [{"type": "reasoning", "text": "Hm", "signature": "s"}, {"type": "text", "text": "It is."}],
        "tool_calls": [{"id": "c", "name": "look", "arguments": '{"a": 1}'}],
    }
    assert seen["whole"] == ["It is.", "Hm", 3, 5, "tool_calls", turn]
    assert seen["models"] == ["counting"]
    assert (seen["aborted"], seen["left"]) == ("AbortError", "AbortError")
    assert (seen["refused"], seen["retried"]) == ("free", [["rate-limited", True]])
    assert seen["once"] == ["rate-limited", "later", 0.5]
    assert (seen["wrong"][0], seen["broken"][0], seen["late"][0]) == ("bad-request", "incomplete-stream", "timeout")
    assert seen["stranger"][0] == "unauthorized"
