"""A model at the edge of the world that counts the tokens of a request: one for each word of its texts."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tests.fakes.turns_llm import TurnsLlm
from tg_schema import COMMON_FEATURES, TextCompletionRequest, TextCompletionResponse


class TokenCounter(TurnsLlm):
    """Answers every request with such a count."""

    def __init__(self, model: str) -> None:
        super().__init__((), features=COMMON_FEATURES | {"count_tokens"}, model=model)

    @override
    async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        self.requests.append(request)
        texts = (request.system or "", request.prompt or "", *(turn.text for turn in request.messages))
        yield TextCompletionResponse(in_token=sum(len(text.split()) for text in texts), end_of_stream=True)
