"""Codex, unmodified, through a tool call and back, over HTTP and over the WebSocket, before a scripted model."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.agents.agent_commands import MODEL, agent_or_skip, full_context, run_agent
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.open_gateway import open_gateway
from tests.flow.test_gateway_auth import LOCKED, TOKEN
from tg_base.llm import LlmService
from tg_schema import COMMON_FEATURES, Message, ToolCallDelta
from tg_schema.features import Feature

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

QUESTION = "What is the secret word in note.txt?"
NOTE = "the secret word is xylophone"
PLAIN: frozenset[Feature] = COMMON_FEATURES | {"developer", "reasoning_turns"}
"""A model without thinking and without any vendor's own fields."""


def scripted(tool: str, arguments: Mapping[str, str], features: frozenset[Feature]) -> TurnsLlm:
    """A model that calls a tool, and knows the answer once it has the result."""
    call = ToolCallDelta(0, "call_1", tool, json.dumps(arguments))
    return TurnsLlm(("I look. ", call), ("It is ", "xylophone."), features=features, model=MODEL)


def results(llm: TurnsLlm) -> list[Message]:
    """The results of tools in the last request."""
    return [message for message in llm.requests[-1].messages if message.role == "tool"]


@pytest.mark.parametrize(("further", "door"), [("", "sse"), (",supports_websockets=true", "socket")])
async def test_codex(tmp_path: Path, further: str, door: str) -> None:
    codex = agent_or_skip("codex")
    (tmp_path / "note.txt").write_text(NOTE, "utf-8")
    llm = scripted("exec_command", {"cmd": "cat note.txt"}, PLAIN)
    with capture_logs() as logs:
        said, _ = await ask_codex(codex, llm, tmp_path, further)
    assert said == "It is xylophone."
    (result,) = results(llm)
    assert NOTE in result.text
    assert {entry["door"] for entry in logs if entry.get("service") == "text-completion" and "door" in entry} == {door}


@pytest.mark.parametrize("further", ["", ",supports_websockets=true"])
async def test_codex_stops_at_a_full_context(tmp_path: Path, further: str) -> None:
    codex = agent_or_skip("codex")
    async with full_context() as (server, service):
        _, log = await ask_codex(codex, service, tmp_path, further, code=1)
    assert "ERROR: Codex ran out of room in the model's context window." in log
    assert len(server.exchanges) == 1, "neither Codex nor we have asked again"


async def ask_codex(codex: Path, llm: LlmService, folder: Path, further: str, code: int = 0) -> tuple[str, str]:
    async with open_gateway(LOCKED, instead=llm) as it:
        provider = f'{{name="tg",base_url="{it.gateway.url}v1",wire_api="responses",env_key="TG_KEY"{further}}}'
        options = ("-c", 'model_provider="tg"', "-c", f"model_providers.tg={provider}")
        arguments = ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", "-m", MODEL, *options)
        return await run_agent(codex, *arguments, QUESTION, folder=folder, settings={"TG_KEY": TOKEN}, code=code)
