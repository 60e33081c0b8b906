"""docs/with-vs-code.md and docs/with-claude-code-and-codex.md: their blocks, run as they are written."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agents.agent_commands import MODEL, agent_or_skip, run_agent
from tests.agents.test_codex import PLAIN
from tests.docs.page import ROOT, blocks
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.open_gateway import open_gateway
from tg_base.config import GatewayConfig
from tg_schema import ToolCallDelta

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

VS_CODE, AGENTS = "with-vs-code.md", "with-claude-code-and-codex.md"
PAGE_MODEL = "my-model"
NOTE = "the secret word is xylophone"


@dataclass(frozen=True)
class Steps:
    """What a page says of a program.

    Attributes:
        program: the command, with which the last block begins a line.
        page: in docs/.
        tool: the program's own, which the model calls with `arguments`; "@" stands for the folder.
        file: where in the home the block above belongs; "" = the program needs none.
        more: lines of that file that only this machine needs.
    """

    program: str
    page: str
    tool: str
    arguments: Mapping[str, str]
    file: str = ""
    more: str = ""


ALL = (
    Steps("cn", VS_CODE, "Read", {"filepath": "@/note.txt"}, ".continue/config.yaml"),
    Steps("copilot", VS_CODE, "bash", {"command": "cat note.txt", "description": "Read it"}),
    Steps("claude", AGENTS, "Read", {"file_path": "@/note.txt"}),
    Steps(
        "codex",
        AGENTS,
        "exec_command",
        {"cmd": "cat note.txt"},
        ".codex/config.toml",
        'sandbox_mode = "danger-full-access"\n',  # a container has no other one
    ),
)


def prepare(steps: Steps, folder: Path, url: str) -> str:
    """A repository with a note, and the file of the page. Returns the page's command; both name this gateway."""
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)  # Codex works in repositories alone
    (folder / "note.txt").write_text(NOTE, "utf-8")
    on_page = list(blocks(ROOT / "docs" / steps.page))
    starts = [f"\n{steps.program} " in f"\n{block.text}" for block in on_page]
    place = starts.index(True)
    if steps.file:
        file = folder / "home" / steps.file
        file.parent.mkdir(parents=True)
        file.write_text(on_page[place - 1].text.replace("http://localhost:8888", url) + steps.more, "utf-8")
    return on_page[place].text.replace("http://localhost:8888", url)


@pytest.mark.parametrize("steps", ALL, ids=lambda steps: steps.program)
async def test_what_the_page_says_is_answered(steps: Steps, tmp_path: Path) -> None:
    program = agent_or_skip(steps.program)
    arguments = json.dumps(steps.arguments).replace("@", str(tmp_path))
    call = ToolCallDelta(0, "call_1", steps.tool, arguments)
    llm = TurnsLlm(("I look. ", call), ("It is ", "xylophone."), features=PLAIN, model=MODEL)
    aliases = GatewayConfig(port=0, drain=0.05, aliases={PAGE_MODEL: MODEL})
    async with open_gateway(aliases, instead=llm) as it:
        command = prepare(steps, tmp_path, it.gateway.url.rstrip("/"))
        # Claude Code asks for a title too, unless it may not.
        settings = {"PATH": f"{program.parent}:{os.environ['PATH']}", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        said, _ = await run_agent(Path("/bin/bash"), "-ec", command, folder=tmp_path, settings=settings)
    assert "It is xylophone." in said
    (result,) = [turn for turn in llm.requests[-1].messages if turn.role == "tool"]
    assert NOTE in result.text
