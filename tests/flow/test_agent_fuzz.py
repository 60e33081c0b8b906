"""Generated dialogs in random pieces: whatever a model writes, the records are valid and nothing is lost."""

import os
import random
from pathlib import Path

import pytest

from tests.fakes.turns_llm import TEXT_ONLY, TurnsLlm
from tests.flow.agent_dialog import BASE, Told, pipeline
from tests.flow.generated_turns import answering, calling, in_pieces, native_calling, nonsense
from tg_schema import COMMON_FEATURES
from tg_schema.errors import ProtocolError, TooLarge

DIALOGS = int(os.environ.get("TOKENGRID_DIALOGS", "300"))
"""10,000 for a full run."""

ECHO = """
[tools.see]
kind = "python"
options.function = "tests.fakes.tools:echo"
arguments = {}
[tools.add_2]
kind = "python"
options.function = "tests.fakes.tools:echo"
arguments = {}
"""


@pytest.mark.timeout(60 + DIALOGS / 20)
async def test_dialogs_over_a_model_that_writes(tmp_path: Path) -> None:
    llm = TurnsLlm(("",), features=TEXT_ONLY)
    async with pipeline(llm, tmp_path, BASE + ECHO) as it:
        for seed in range(DIALOGS):
            chance = random.Random(seed)
            turns = [calling(chance) for _ in range(chance.randrange(4))] + [answering(chance)]
            llm.turns = tuple(tuple(in_pieces(chance, text)) for text, _ in turns)
            llm.requests.clear()
            told = await it.tell(streaming=chance.random() < 0.9)
            expected = [message for _, messages in turns for message in messages]
            assert told.error is None, (seed, told.error)
            if len(told.records) > 1:
                assert in_order(told) == expected, seed
            assert told.answer == expected[-1][1], seed
            assert told.records[-1].in_token == 10 * len(turns), seed


@pytest.mark.timeout(60 + DIALOGS / 20)
async def test_dialogs_over_a_model_that_calls_natively(tmp_path: Path) -> None:
    llm = TurnsLlm(("",), features=COMMON_FEATURES)
    async with pipeline(llm, tmp_path, BASE + ECHO) as it:
        for seed in range(DIALOGS // 4):
            chance = random.Random(seed)
            expected, turns = [], []
            for _ in range(chance.randrange(3)):
                pieces, messages = native_calling(chance)
                turns.append(tuple(pieces))
                expected += messages
            text, messages = answering(chance)
            turns.append(tuple(in_pieces(chance, text)))
            llm.turns = tuple(turns)
            llm.requests.clear()
            told = await it.tell()
            assert told.error is None, (seed, told.error)
            assert [message for message in told.messages if message[0] != "observation"] == expected + messages, seed


@pytest.mark.timeout(60 + DIALOGS / 20)
async def test_a_model_that_writes_anything_ends_in_an_answer_or_typed(tmp_path: Path) -> None:
    llm = TurnsLlm(("",), features=TEXT_ONLY)
    async with pipeline(llm, tmp_path, BASE + ECHO) as it:
        for seed in range(DIALOGS):
            chance = random.Random(seed)
            llm.turns = tuple(tuple(in_pieces(chance, nonsense(chance))) for _ in range(4))
            llm.requests.clear()
            told = await it.tell(streaming=chance.random() < 0.9)
            assert told.error is None or isinstance(told.error, ProtocolError | TooLarge), (seed, told.error)


def in_order(told: Told) -> list[tuple[str, str]]:
    """What the model says and does; results of calls that run side by side have no order, and are left out."""
    return [message for message in told.messages if message[0] != "observation"]
