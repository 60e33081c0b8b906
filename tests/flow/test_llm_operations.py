"""What the base does for every provider beside answers: counts, token ids, vectors; and with tools that it lacks."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from typing_extensions import override

from tests.fakes.answers_llm import AnswersLlm, Steps
from tg_base.llm import Detokenized, Embeddings, LlmChunk, LlmService, ProviderOptions, Scores
from tg_base.llm.guard import Clocks
from tg_base.llm.operations import MAX_RECORD_BYTES
from tg_schema import (
    COMMON_FEATURES,
    FinishReason,
    ImagePart,
    Message,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    TgError,
    Token,
    Tool,
    ToolCallDelta,
    encode,
)
from tg_schema.errors import BadRequest, NotFound, ProtocolError, SchemaViolation, Timeout

COUNT = TextCompletionRequest(prompt="a b c", operation="count-tokens")
TOKENIZE = TextCompletionRequest(texts=("a b", "c"), operation="tokenize")
DETOKENIZE = TextCompletionRequest(prompt_ids=(1, 2), operation="detokenize", token_texts=True)
SCORE = TextCompletionRequest(prompt="a", scored=(1, 2), operation="score", sampling=Sampling(prompt_logprobs=0))
EMBED = TextCompletionRequest(texts=("a", "b"), operation="embed")
LENGTHS = (Token(1, "x"), Token(2, "xx"))


class Operates(AnswersLlm):
    """Counts words. `wrong` makes it lie, `late` makes it never answer."""

    features = (COMMON_FEATURES - {"images"}) | {
        *("count_tokens", "tokenize", "detokenize", "token_texts", "score", "prompt_logprobs", "embed"),
    }

    def __init__(self, *, wrong: bool = False, late: bool = False) -> None:
        super().__init__((), options=ProviderOptions(clocks=Clocks(first_token=0.05)))
        self.wrong, self.late = wrong, late
        self.width = 0

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
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        texts = ["x" * number for number in request.prompt_ids]
        return Detokenized(" ".join(texts), tuple(map(Token, request.prompt_ids, texts)) if request.token_texts else ())

    @override
    async def score(self, request: TextCompletionRequest) -> Scores:
        tokens = tuple(Token(number, "", -0.5) for number in request.scored)
        return Scores(tokens[:-1] if self.wrong else tokens, (Token(7, "a"),), in_token=3)

    @override
    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        vectors = tuple((0.5, float(number), *[0.5] * self.width) for number, _ in enumerate(request.texts))
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
    assert await ask(service, DETOKENIZE) == TextCompletionResponse(
        response="x xx", model=name, tokens=LENGTHS, end_of_stream=True
    )
    assert await ask(service, SCORE) == TextCompletionResponse(
        response="",
        model=name,
        tokens=(Token(1, "", -0.5), Token(2, "", -0.5)),
        prompt_tokens=(Token(7, "a"),),
        in_token=3,
        end_of_stream=True,
    )
    assert [request.model for request in service.requests] == [name]


async def test_token_ids_come_with_their_texts_if_asked() -> None:
    texts = TextCompletionRequest(texts=("a bb", "c"), operation="tokenize", token_texts=True)
    answer = await ask(Operates(), texts)
    assert answer.ids == (1, 2, 1)
    assert answer.tokens == (*LENGTHS, LENGTHS[0])


async def test_many_vectors_come_in_several_records_that_join_to_one_answer() -> None:
    service = Operates()
    many = TextCompletionRequest(texts=("a",) * 2048, operation="embed")
    service.width = 100
    async with aclosing(service.on_request(many)) as stream:
        records = [record async for record in stream]
    assert len(records) > 1
    assert all(len(encode(record)) < 2 * MAX_RECORD_BYTES for record in records)
    (whole,) = TextCompletionResponse.join(records)
    assert [vector[1] for vector in whole.vectors] == list(range(2048))
    assert (whole.in_token, whole.end_of_stream) == (2, True)


@pytest.mark.parametrize(
    ("service", "request_", "kind", "message"),
    [
        (AnswersLlm(()), COUNT, BadRequest, "can't do this: count_tokens;"),
        (AnswersLlm(()), TOKENIZE, BadRequest, "can't do this: tokenize;"),
        (AnswersLlm(()), EMBED, BadRequest, "can't do this: embed;"),
        (AnswersLlm(()), DETOKENIZE, BadRequest, "can't do this: detokenize, token_texts;"),
        (AnswersLlm(()), SCORE, BadRequest, "can't do this: prompt_logprobs, score;"),
        (Operates(), TextCompletionRequest(operation="sing"), BadRequest, '"load-adapter" or "unload-adapter"'),
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
        (Operates(wrong=True), SCORE, ProtocolError, "did not score"),
        (Operates(late=True), COUNT, Timeout, "did not count the tokens within 0.05 s"),
    ],
)
async def test_what_cannot_be_answered_is_told(
    service: LlmService, request_: TextCompletionRequest, kind: type[TgError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await ask(service, request_)


CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
WEATHER, CLOCK = Tool("weather", parameters=CITY, strict=True), Tool("clock", parameters=CITY)
END = LlmChunk(in_token=5, out_token=4, finish_reason="tool_calls")


class HasTools(AnswersLlm):
    """Does all of it itself."""

    features = COMMON_FEATURES | {"strict_tools", "allowed_tools", "parallel_tool_calls"}


def call(index: int, name: str, *arguments: str) -> list[LlmChunk]:
    begun = LlmChunk(tool_calls=(ToolCallDelta(index, f"c{index}", name),))
    return [begun, *(LlmChunk(tool_calls=(ToolCallDelta(index, arguments=piece),)) for piece in arguments)]


async def ask_with_tools(service: LlmService, **fields: Any) -> list[TextCompletionResponse]:
    request = TextCompletionRequest(prompt="p", **{"tools": (WEATHER, CLOCK), "streaming": True, **fields})
    async with aclosing(service.on_request(request)) as stream:
        return [record async for record in stream]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", [AnswersLlm, HasTools])
async def test_calls_of_a_strict_tool_are_held_to_its_schema(kind: type[AnswersLlm], *, streaming: bool) -> None:
    right = [*call(0, "weather", '{"ci', 'ty": "Oslo"}'), *call(1, "clock", "{}"), END]
    (whole,) = TextCompletionResponse.join(await ask_with_tools(kind(right), streaming=streaming))
    assert [call.arguments for call in whole.tool_calls] == ['{"city": "Oslo"}', "{}"]
    for wrong in ('{"city": 1}', "{}", '{"city"', "", "[" * 100_000):
        with pytest.raises(SchemaViolation, match="call of weather"):
            await ask_with_tools(kind([*call(0, "weather", wrong), END]), streaming=streaming)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_a_call_that_is_cut_says_so_itself(reason: FinishReason) -> None:
    records = await ask_with_tools(AnswersLlm([*call(0, "weather", '{"ci'), LlmChunk(finish_reason=reason)]))
    assert records[-1].finish_reason == reason


async def test_each_of_several_answers_is_held_to_it() -> None:
    right, wrong = [*call(0, "weather", '{"city": "Oslo"}'), END], [*call(0, "weather", "{}"), END]
    assert (await ask_with_tools(AnswersLlm(right), sampling=Sampling(n=2)))[-1].end_of_stream
    with pytest.raises(SchemaViolation):
        await ask_with_tools(AnswersLlm(right, wrong), sampling=Sampling(n=2))


async def test_a_strict_tool_without_a_schema_is_refused() -> None:
    service = AnswersLlm([END])
    with pytest.raises(BadRequest, match="tools: odd: not a valid JSON schema"):
        await ask_with_tools(service, tools=(Tool("odd", parameters={"type": "blah"}, strict=True),))
    assert service.requests == []


@pytest.mark.parametrize("kind", [AnswersLlm, HasTools])
async def test_a_provider_gets_what_it_knows(kind: type[AnswersLlm]) -> None:
    service = kind([END])
    await ask_with_tools(service, allowed_tools=("weather",), parallel_tool_calls=False)
    (got,) = service.requests
    if kind is HasTools:
        assert (got.tools, got.allowed_tools, got.parallel_tool_calls) == ((WEATHER, CLOCK), ("weather",), False)
    else:
        plain = Tool("weather", parameters=CITY)
        assert (got.tools, got.allowed_tools, got.parallel_tool_calls) == ((plain,), (), None)


TWO: Steps = [
    LlmChunk("Let me see."),
    *call(0, "clock", '{"city": '),
    LlmChunk(tool_calls=(ToolCallDelta(0, arguments='"Oslo"}'), ToolCallDelta(1, "c1", "weather"))),
    *call(2, "clock", "{}"),
    END,
]


@pytest.mark.parametrize("streaming", [True, False])
async def test_calls_after_the_first_one_are_dropped_where_one_is_wanted(*, streaming: bool) -> None:
    records = await ask_with_tools(AnswersLlm(TWO), parallel_tool_calls=False, streaming=streaming)
    (whole,) = TextCompletionResponse.join(records)
    assert whole.tool_calls == (ToolCallDelta(0, "c0", "clock", '{"city": "Oslo"}'),)
    assert (whole.response, whole.finish_reason, whole.out_token) == ("Let me see.", "tool_calls", 4)
    assert all(record.response or record.tool_calls or record.end_of_stream for record in records)


async def test_each_of_several_answers_has_one_call() -> None:
    records = await ask_with_tools(AnswersLlm(TWO), parallel_tool_calls=False, streaming=False, sampling=Sampling(n=2))
    assert [[call.index for call in record.tool_calls] for record in records] == [[0], [0]]


@pytest.mark.parametrize(("kind", "calls"), [(AnswersLlm, 3), (HasTools, 3)])
async def test_several_calls_are_passed_on_otherwise(kind: type[AnswersLlm], calls: int) -> None:
    tools = (CLOCK, Tool("weather"))
    for wanted in (None, True):
        (whole,) = TextCompletionResponse.join(await ask_with_tools(kind(TWO), tools=tools, parallel_tool_calls=wanted))
        assert len(whole.tool_calls) == calls
