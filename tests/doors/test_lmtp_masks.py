"""Masks of a megabyte on one socket, and a stream on another: its tokens keep coming while they are read."""

import asyncio
import json
from array import array
from base64 import b64encode

import pytest

from tests.doors.open_lmtp import MODEL, Lmtp, open_lmtp
from tests.fakes.token_llm import TokenLlm
from tg_doors.lmtp.mask import PACKED_SLICE_BYTES

MASKS = 10
WHOLE = {str(number): 100 for number in range(0, 160_000, 2)}
DECIMALS = {str(number): number % 90 + 0.25 for number in range(0, 160_000, 3)}
FLOATS = b64encode(array("f", [0.5] * 160_000).tobytes()).decode()
"""Read in one step: what comes beside it comes while a message of nearly a megabyte arrives."""
MAX_TURNS = 20
"""Of the event loop from one token to the next: what each takes from the model to the client, and some more."""


class _MaskedLlm(TokenLlm):
    """One token in each turn of the event loop."""

    features = TokenLlm.features | {"packed_bias", "packed_floats"}


class _Reader:
    """Takes a stream's tokens, and counts the turns of the loop in between."""

    def __init__(self, client: Lmtp) -> None:
        self.client = client
        self.tokens = 0
        self.longest = 0
        self.first = asyncio.Event()
        self._turns = 0

    async def read(self) -> None:
        while True:
            self.tokens += len((await self.client.read())[1])
            self.longest = max(self.longest, self._turns) if self.first.is_set() else 0
            self._turns = 0
            self.first.set()

    async def turn(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._turns += 1

    async def count_beside(self, masked: Lmtp, mask: object) -> int:
        """Tokens that come while an answer with this mask is asked for."""
        before = self.tokens
        message = {"model": MODEL, "prompt": [72], "stream_id": 2, "logit_bias": mask}
        await masked.socket.send_str(f"GENERATE {json.dumps(message)}")
        assert (await masked.stream(2))[-1]["finish_reason"] == "stop"
        return self.tokens - before


@pytest.mark.parametrize("mask", [WHOLE, DECIMALS], ids=["whole", "decimals"])
async def test_tokens_come_between_the_steps_of_a_mask(mask: dict[str, float]) -> None:
    steps = len(json.dumps(mask)) / PACKED_SLICE_BYTES
    async with open_lmtp(_MaskedLlm()) as (it, masked), it.http.ws_connect("/lmtp") as socket:
        reader = _Reader(Lmtp(socket))
        await reader.client.generate(1, [72] * 20_000, max_tokens=20_000)
        tasks = [asyncio.create_task(work) for work in (reader.read(), reader.turn())]
        await reader.first.wait()
        more = 0
        for _ in range(MASKS):
            more += await reader.count_beside(masked, mask) - await reader.count_beside(masked, FLOATS)
        assert more > MASKS * steps / 2
        assert reader.longest <= MAX_TURNS
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
