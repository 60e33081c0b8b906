"""What a provider can be asked beside answers: counts, token ids, vectors."""

import asyncio
from contextlib import aclosing

import pytest
from typing_extensions import override

from tests.fakes.answers_llm import AnswersLlm
from tg_base.llm import Embeddings, LlmService, ProviderOptions
from tg_base.llm.guard import Clocks
from tg_schema import COMMON_FEATURES, ImagePart, Message, TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.errors import BadRequest, NotFound, ProtocolError, Timeout

COUNT = TextCompletionRequest(prompt="a b c", operation="count-tokens")
TOKENIZE = TextCompletionRequest(texts=("a b", "c"), operation="tokenize")
EMBED = TextCompletionRequest(texts=("a", "b"), operation="embed")


class Operates(AnswersLlm):
    """Counts words. `wrong` makes it lie, `late` makes it never answer."""

    features = (COMMON_FEATURES - {"images"}) | {"count_tokens", "tokenize", "embed"}

    def __init__(self, *, wrong: bool = False, late: bool = False) -> None:
        super().__init__((), options=ProviderOptions(clocks=Clocks(first_token=0.05)))
        self.wrong, self.late = wrong, late

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        self.requests.append(request)
        if self.late:
            await asyncio.Event().wait()
        return -1 if self.wrong else len(request.turns[-1].text.split())

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        return tuple(len(word) for text in request.texts for word in text.split())

    @override
    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        vectors = tuple((0.5, float(number)) for number, _ in enumerate(request.texts))
        return Embeddings(vectors[:-1] if self.wrong else vectors, in_token=2)


async def ask(service: LlmService, request: TextCompletionRequest) -> TextCompletionResponse:
    async with aclosing(service.on_request(request)) as stream:
        (record,) = [record async for record in stream]
    return record


async def test_each_operation_is_answered_with_one_record() -> None:
    service = Operates()
    name = service.model
    assert await ask(service, COUNT) == TextCompletionResponse(response="", model=name, in_token=3, end_of_stream=True)
    assert await ask(service, TOKENIZE) == TextCompletionResponse(
        response="", model=name, ids=(1, 1, 1), end_of_stream=True
    )
    assert await ask(service, EMBED) == TextCompletionResponse(
        response="", model=name, vectors=((0.5, 0.0), (0.5, 1.0)), in_token=2, end_of_stream=True
    )
    assert [request.model for request in service.requests] == [name]


@pytest.mark.parametrize(
    ("service", "request_", "kind", "message"),
    [
        (AnswersLlm(()), COUNT, BadRequest, "can't do this: count_tokens;"),
        (AnswersLlm(()), TOKENIZE, BadRequest, "can't do this: tokenize;"),
        (AnswersLlm(()), EMBED, BadRequest, "can't do this: embed;"),
        (Operates(), TextCompletionRequest(operation="count-tokens"), BadRequest, "prompt is missing"),
        (Operates(), TextCompletionRequest(operation="embed"), BadRequest, "texts is missing"),
        (
            Operates(),
            TextCompletionRequest(operation="count-tokens", messages=(Message("user", (ImagePart(data="QQ=="),)),)),
            BadRequest,
            "images",
        ),
        (Operates(), TextCompletionRequest(operation="embed", texts=("a",), model="b"), NotFound, "no model"),
        (Operates(wrong=True), COUNT, ProtocolError, "out of range"),
        (Operates(wrong=True), EMBED, ProtocolError, "one vector for each text"),
        (Operates(late=True), COUNT, Timeout, "did not count the tokens within 0.05 s"),
    ],
)
async def test_what_cannot_be_answered_is_told(
    service: LlmService, request_: TextCompletionRequest, kind: type[TgError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await ask(service, request_)
