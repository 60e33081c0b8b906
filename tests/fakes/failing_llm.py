"""A model whose stream ends without its terminal marker."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tg_base.llm import LlmChunk
from tg_schema import TextCompletionRequest


class FailingLlm(CountingLlm):
    """Generates as many words as its prompt says, then breaks."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        async for chunk in super().generate_content_stream(request):
            if chunk.finish_reason is None:
                yield chunk
