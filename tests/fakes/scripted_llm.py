"""A model at the edge of the world that says exactly what a test wrote down, piece by piece."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService
from tg_schema import COMMON_FEATURES, FinishReason, TextCompletionRequest


class ScriptedLlm(LlmService):
    """Answers every request with `pieces`, then 11 prompt tokens, one answer token a piece, and `finish_reason`.

    None is a stream that was cut before its terminal marker.
    """

    features = COMMON_FEATURES

    def __init__(self, *pieces: str, finish_reason: FinishReason | None = "stop") -> None:
        super().__init__("scripted")
        self.pieces = pieces
        self.finish_reason = finish_reason
        self.requests: list[TextCompletionRequest] = []

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        self.requests.append(request)
        for piece in self.pieces:
            yield LlmChunk(text=piece, out_token=1)
        yield LlmChunk(in_token=11, finish_reason=self.finish_reason)
