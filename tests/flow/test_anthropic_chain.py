"""SDK -> our door -> the provider `anthropic` -> our door -> a model: both together change nothing."""

from typing import Any

import msgspec
from anthropic import AsyncAnthropic

from tests.fakes.messages_llm import COUNTED
from tests.flow.anthropic_asking import HI, MODEL, Asking, open_asking, until_ready
from tests.flow.open_gateway import QUICK, open_gateway
from tg_base.llm import LlmChunk, LlmService
from tg_flow.providers import open_provider
from tg_schema import TextCompletionRequest, ToolCallDelta

SIGNATURE = "anthropic:AbC="
CALLING = (
    LlmChunk(reasoning="hm"),
    LlmChunk(signature=SIGNATURE),
    LlmChunk(signature="anthropic-redacted:ZZ=="),
    "I look.",
    ToolCallDelta(0, "toolu_1", "weather"),
    ToolCallDelta(0, arguments='{"town":"Ulm"}'),
)
MARK: Any = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
ASKED: Any = {
    "model": MODEL,
    "max_tokens": 2000,
    "system": [{"type": "text", "text": "be brief"} | MARK],
    "tools": [{"name": "weather", "description": "of a town", "input_schema": {"type": "object"}} | MARK],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "thinking": {"type": "adaptive", "display": "omitted"},
    "metadata": {"user_id": "u"},
    "output_config": {"effort": "low", "task_budget": {"type": "tokens", "total": 9}},
    "extra_body": {"context_management": {"edits": []}, "top_k": 3},
    "extra_headers": {"anthropic-beta": "a-1,b-2"},
}


async def open_claude(asking: Asking) -> LlmService:
    """The provider, with a gateway as Anthropic's API."""
    options = {"base_url": asking.it.gateway.url.rstrip("/"), "key_variable": "", "tries": 1}
    return await open_provider("anthropic", MODEL, options)


async def ask_twice(sdk: AsyncAnthropic) -> tuple[Any, Any]:
    """A call of a tool, and the answer to its result."""
    first: Any = await sdk.messages.create(messages=[HI], **ASKED)
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sun", "is_error": True} | MARK
    turns: Any = [HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    return first, await sdk.messages.create(messages=turns, **ASKED)


def compared(request: TextCompletionRequest) -> TextCompletionRequest:
    """Without what is said anew on each wire: whether it streams, and the order of fields."""
    return msgspec.structs.replace(request, streaming=None)


async def test_a_round_with_tools() -> None:
    async with open_asking(CALLING, ["Sunny."]) as asking:
        await ask_twice(asking.sdk)
        direct = [compared(request) for request in asking.llm.requests]
        asking.llm.requests.clear()
        claude = await open_claude(asking)
        async with (
            open_gateway(instead=claude, timing=QUICK) as it,
            AsyncAnthropic(api_key="any", base_url=it.gateway.url, max_retries=0) as sdk,
        ):
            await until_ready(it)
            first, second = await ask_twice(sdk)
            counted = await sdk.messages.count_tokens(model=MODEL, messages=[HI])
        await claude.aclose()
    assert [block.type for block in first.content] == ["thinking", "thinking", "text", "tool_use"]
    assert (first.content[0].thinking, first.content[0].signature) == ("hm", f"anthropic:{SIGNATURE}")
    assert (first.content[3].input, first.stop_reason) == ({"town": "Ulm"}, "tool_use")
    assert (second.content[0].text, second.stop_reason) == ("Sunny.", "end_turn")
    assert (second.usage.input_tokens, second.usage.output_tokens) == (10, 1)
    assert counted.input_tokens == COUNTED
    through = [compared(request) for request in asking.llm.requests if not request.operation]
    assert through == direct
    assert len(direct) == 2
