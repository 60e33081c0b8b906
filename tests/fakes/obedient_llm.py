"""A model that does what it is told: the question `NAME {...}` calls a tool, and the tool's result is the answer."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService
from tg_schema import COMMON_FEATURES, TextCompletionRequest, ToolCallDelta, encode


class ObedientLlm(LlmService):
    """The question "tools" is answered with what it was told of the tools, as JSON."""

    features = COMMON_FEATURES

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        question, last = request.turns[0].text, request.turns[-1]
        name, _, arguments = question.partition(" ")
        if name == "tools":
            yield LlmChunk(text=f"Final Answer: {encode(request.tools).decode()}")
        elif last.role == "tool":
            yield LlmChunk(text=f"Final Answer: {last.text}")
        else:
            yield LlmChunk(text=f"Thought: I need {name}.", out_token=3)
            yield LlmChunk(tool_calls=(ToolCallDelta(0, "call_1", name, arguments),))
        yield LlmChunk(in_token=1, finish_reason="stop")
