"""A model that floods: many bytes for little work, to fill every buffer between it and a client that does not read."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tg_base.llm import LlmChunk
from tg_schema import TextCompletionRequest

WORD = "x" * 4096


class WordyLlm(CountingLlm):
    """Each of its words has 4 KiB, unless the prompt asks for few of them."""

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        many = int(request.prompt or "0") > 100
        async for chunk in super().generate_content_stream(request):
            yield LlmChunk(text=WORD) if many and chunk.text else chunk
