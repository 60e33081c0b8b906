"""A large request is written for its provider in another process: what is sent is the same, whatever the wire."""

import msgspec
import pytest

from tests.fakes.counting_llm import CountingLlm
from tests.fakes.turn_counter import TurnCounter
from tests.provider_matrix.asking import TOOL_HISTORY, responses
from tests.provider_matrix.case import Case, cases, staged
from tg_base.llm import SdkProvider
from tg_base.server import Unreadable
from tg_schema import Message, TextCompletionRequest, encode
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Foreign

WIRES = ("anthropic", "openai")
"""An SDK that makes each request, and one that prepares what our connections send."""
MANY = 3000
"""Turns of a conversation; to write one for a provider takes more than one call."""
BETAS = ("context-management-2025-06-27",)
OWN_FIELDS = Foreign("anthropic", {"context_management": {"edits": [{"a": 1}] * MANY}}, betas=BETAS)
"""What one of them passes on as it came; its SDK copies each object."""
COUNTED = msgspec.structs.replace(TOOL_HISTORY, operation="count-tokens")
UNREADABLE = b'{"messages":[{"role":"nobody"}]}'
REFUSED = b'{"messages":[{"role":"user","content":"hello","tool_calls":[{"id":"a","name":"b"}]}]}'


@pytest.mark.parametrize("case", [case for case in cases() if case.provider in WIRES], ids=lambda case: case.provider)
async def test_the_same_is_sent(case: Case) -> None:
    async with staged(case) as stage, stage.opened() as provider:
        assert isinstance(provider, SdkProvider)
        here = await responses(provider, TOOL_HISTORY)
        prepared = await provider.read(encode(TOOL_HISTORY))
        assert prepared.messages == ()
        apart = await responses(provider, prepared)
        sent, prepared_sent = stage.wire.exchanges
        assert (sent.path, sent.asked, sent.headers) == (prepared_sent.path, prepared_sent.asked, prepared_sent.headers)
        assert [record.response for record in apart] == [record.response for record in here]
        long = TextCompletionRequest(messages=(Message("user", "turn"),) * MANY)
        async with TurnCounter() as counter:
            await provider.read(encode(long))
        assert counter.longest < MANY
        asked = msgspec.structs.replace(TOOL_HISTORY, foreign=OWN_FIELDS)
        await responses(provider, asked)
        prepared = await provider.read(encode(asked))
        async with TurnCounter() as counter:
            await responses(provider, prepared)
        assert counter.longest < MANY
        *_, sent, again = stage.wire.exchanges
        assert (sent.path, sent.asked, sent.headers) == (again.path, again.asked, again.headers)
        with pytest.raises(Unreadable, match=r"role|enum"):
            await provider.read(UNREADABLE)
        with pytest.raises(BadRequest, match="tool_calls belong to a turn of the assistant"):
            await provider.read(REFUSED)
        if "count_tokens" in provider.features:
            counted = await responses(provider, COUNTED)
            prepared = await provider.read(encode(COUNTED))
            assert prepared.messages == ()
            assert await responses(provider, prepared) == counted
            *_, sent, again = stage.wire.exchanges
            assert (sent.path, sent.asked, sent.headers) == (again.path, again.asked, again.headers)


async def test_a_provider_without_an_sdk_of_its_own_reads_in_parts() -> None:
    long = TextCompletionRequest(messages=(Message("user", "turn"),) * 3 * MANY)
    provider = CountingLlm()
    try:
        async with TurnCounter() as counter:
            read = await provider.read(encode(long))
        # Of the calls of one turn, those that make a message are the most.
        assert counter.longest < MANY
        assert read.messages == long.messages
    finally:
        await provider.aclose()
