"""A model that refuses every request as its prompt says: the prompt is the message."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tests.fakes.counting_llm import CountingLlm
from tg_base.llm import LlmChunk
from tg_schema import COMMON_FEATURES, TextCompletionRequest
from tg_schema.errors import BadRequest


class RefusingLlm(CountingLlm):
    """Says in the words of the request record what is wrong, as a provider does that checks what it is asked."""

    features = COMMON_FEATURES | {"raw", "count_tokens"}

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        raise BadRequest(request.prompt or request.messages[-1].text)
        yield LlmChunk()
