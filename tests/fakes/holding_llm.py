"""A model whose code holds its event loop when it is asked to, and answers JSON where a schema is asked for."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService
from tg_schema import COMMON_FEATURES, TextCompletionRequest

HOLD = "hold the loop"


class HoldingLlm(LlmService):
    """Never gives the loop a turn after the prompt `HOLD`."""

    features = COMMON_FEATURES | {"schema"}

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        while request.prompt == HOLD:
            pass
        yield LlmChunk(text="{}", in_token=1, out_token=1, finish_reason="stop")
