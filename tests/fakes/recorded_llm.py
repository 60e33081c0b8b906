"""A text completion at the edge of the world that answers with the records that a test wrote down."""

from collections.abc import AsyncGenerator

from typing_extensions import override

from tg_base.server import Service
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse
from tg_schema.features import Feature


class RecordedLlm(Service[TextCompletionRequest, TextCompletionResponse]):
    """Answers every request, streaming or not, with `records`."""

    spec = TEXT_COMPLETION
    features = frozenset[Feature]({"history", "images", "tools", "n", "reasoning", "reasoning_turns", "developer"})

    def __init__(self, *records: TextCompletionResponse) -> None:
        self.records = records
        self.requests: list[TextCompletionRequest] = []

    @override
    async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        self.requests.append(request)
        for record in self.records:
            yield record


SEVERAL = (
    TextCompletionResponse(reasoning="hm", signature="fake:1", response="one", model="recorded"),
    TextCompletionResponse(index=1, response="uno", model="recorded", finish_reason="length"),
    TextCompletionResponse(reasoning="so", signature="fake:2", response=" two", model="recorded", finish_reason="stop"),
    TextCompletionResponse(model="recorded", in_token=5, out_token=9, reasoning_token=2, end_of_stream=True),
)
"""Two answers, the first of which thinks again after its first word."""
