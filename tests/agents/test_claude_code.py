"""What Claude Code, unmodified, sends back to Anthropic's door: the thinking of a turn, and a whole new request."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.agent_commands import agent_or_skip, full_context, run_agent
from tests.fakes.messages_llm import CLAUDE, PLAIN, MessagesLlm
from tests.flow.anthropic_asking import MODEL, open_asking, until_ready
from tests.flow.open_gateway import Opened, open_gateway
from tg_base.llm import LlmChunk
from tg_schema import Message, TextPart, ToolCall, ToolCallDelta
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import IncompleteStream
from tg_schema.features import Feature

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

ARGUMENTS = '{"command":"echo loop-back-42","description":"Echo"}'
CALLING = (
    LlmChunk(reasoning="I should look."),
    LlmChunk(signature="fake:AbC="),
    "Let me see.",
    ToolCallDelta(0, "toolu_1", "Bash"),
    ToolCallDelta(0, arguments=ARGUMENTS[:20]),
    ToolCallDelta(0, arguments=ARGUMENTS[20:]),
)
ANSWER = ("It says ", "loop-back-42.")


async def ask_claude_code(it: Opened, folder: Path, code: int = 0) -> dict[str, Any]:
    """The result that it prints."""
    settings = {
        "ANTHROPIC_BASE_URL": it.gateway.url.rstrip("/"),
        "ANTHROPIC_AUTH_TOKEN": "any",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    arguments = ("-p", "Run echo.", "--allowedTools", "Bash(echo:*)", "--output-format", "json")
    printed, _ = await run_agent(agent_or_skip("claude"), *arguments, folder=folder, settings=settings, code=code)
    result: dict[str, Any] = json.loads(printed)
    return result


@pytest.mark.parametrize("features", [CLAUDE, PLAIN], ids=["claude", "another"])
async def test_it_brings_the_thinking_of_a_call_back(features: frozenset[Feature], tmp_path: Path) -> None:
    llm = MessagesLlm(CALLING, ANSWER, features=features)
    async with open_asking(llm=llm) as asking:
        result = await ask_claude_code(asking.it, tmp_path)
    assert (result["result"], result["is_error"], result["num_turns"]) == ("It says loop-back-42.", False, 2)
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (20, 6)
    first, second = llm.requests
    assert {"Bash", "Read"} <= {tool.name for tool in first.tools}
    assert second.messages[-2:] == (
        Message(
            "assistant",
            (ReasoningPart("I should look.", "fake:AbC="), TextPart("Let me see.")),
            (ToolCall("toolu_1", "Bash", ARGUMENTS),),
        ),
        Message("tool", "loop-back-42", tool_call_id="toolu_1", cache="5m"),
    )
    assert (first.foreign is None, first.reasoning is None) == (features is PLAIN, features is PLAIN)


async def test_after_a_broken_stream_it_asks_again(tmp_path: Path) -> None:
    llm = MessagesLlm(["It s", IncompleteStream("cut")], ANSWER)
    async with open_asking(llm=llm) as asking:
        result = await ask_claude_code(asking.it, tmp_path)
    assert (result["result"], result["is_error"]) == ("It says loop-back-42.", False)
    assert [request.streaming for request in llm.requests] == [True, False]


async def test_it_stops_at_a_full_context(tmp_path: Path) -> None:
    async with full_context() as (server, service), open_gateway(instead=service) as it:
        await until_ready(it)
        result = await ask_claude_code(it, tmp_path, code=1)
    assert result["result"].startswith("Prompt is too long")
    assert "limit 4096" in result["result"]
    assert len(server.exchanges) == 1, "neither it nor we have asked again"
