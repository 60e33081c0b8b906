"""Claude Code and Codex, cut at a random byte of an answer: with `attach = "same-body"` the model is asked once."""

import json
import random
from pathlib import Path

import msgspec
import pytest

from tests.agents.agent_commands import MODEL, agent_or_skip, run_agent
from tests.agents.cutting_proxy import CuttingProxy
from tests.fakes.messages_llm import PLAIN, MessagesLlm
from tests.fakes.turns_llm import TurnsLlm
from tests.flow.anthropic_asking import until_ready
from tests.flow.open_gateway import open_gateway
from tests.flow.test_gateway_auth import LOCKED, TOKEN
from tg_base.llm import LlmService
from tg_schema import COMMON_FEATURES

pytestmark = [pytest.mark.agents, pytest.mark.timeout(900)]

ATTACHING = msgspec.structs.replace(
    LOCKED, keys=tuple(msgspec.structs.replace(key, attach="same-body") for key in LOCKED.keys)
)
MOST_BYTES = 1500
ANSWER = tuple(f"word {number} " for number in range(40))


async def ask_cut(llm: LlmService, name: str, path: str, folder: Path, after: int) -> str:
    """What an agent prints whose first answer is cut."""
    async with open_gateway(ATTACHING, instead=llm) as it:
        await until_ready(it)
        async with CuttingProxy(it.address[1], path.encode(), after).listening() as proxy:
            if name == "claude":
                settings = {
                    "ANTHROPIC_BASE_URL": proxy.url,
                    "ANTHROPIC_AUTH_TOKEN": TOKEN,
                    "ANTHROPIC_MODEL": MODEL,
                    "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
                    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                }
                asked = ("-p", "Count.", "--output-format", "json")
                said, _ = await run_agent(agent_or_skip("claude"), *asked, folder=folder, settings=settings)
                said = str(json.loads(said)["result"])
            else:
                provider = f'{{name="tg",base_url="{proxy.url}/v1",wire_api="responses",env_key="TG_KEY"}}'
                options = ("-c", 'model_provider="tg"', "-c", f"model_providers.tg={provider}")
                arguments = ("exec", "--skip-git-repo-check", "-m", MODEL, *options, "Count.")
                said, _ = await run_agent(agent_or_skip("codex"), *arguments, folder=folder, settings={"TG_KEY": TOKEN})
            assert proxy.cut == 1
    return said


@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_the_answer_is_whole_and_asked_for_once(name: str, tmp_path: Path) -> None:
    llm: TurnsLlm = (
        MessagesLlm(ANSWER, features=PLAIN)
        if name == "claude"
        else TurnsLlm(ANSWER, features=COMMON_FEATURES | {"developer", "reasoning_turns"}, model=MODEL)
    )
    after = random.Random().randrange(1, MOST_BYTES)
    said = await ask_cut(llm, name, "/v1/messages?" if name == "claude" else "/v1/responses ", tmp_path, after)
    assert said.strip() == "".join(ANSWER).strip(), after
    assert len([request for request in llm.requests if request.operation is None]) == 1, after
