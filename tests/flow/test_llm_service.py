"""What every provider inherits: retries, clocks, usage, and one override for both ways of asking."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.llm.guard import Clocks
from tg_base.llm.service import MAX_RETRY_PAUSE_SECONDS
from tg_schema import ModelInfo, TextCompletionRequest, TextCompletionResponse, TgError, Token
from tg_schema.errors import (
    BadRequest,
    ContentFilter,
    IncompleteStream,
    NotFound,
    ProviderAuth,
    RateLimited,
    Timeout,
    Unavailable,
)

REQUEST = TextCompletionRequest(system="be brief", prompt="hello")
STREAMING = TextCompletionRequest(system="be brief", prompt="hello", streaming=True)

QUICK = ProviderOptions(clocks=Clocks(first_token=0.02))

ANSWER = (
    LlmChunk("Hel", model="big-1", in_token=5),
    LlmChunk(reasoning="hm", out_token=1),
    LlmChunk("lo", out_token=2, tokens=(Token(1, "lo"),)),
    LlmChunk(finish_reason="stop"),
    LlmChunk(in_token=2, out_token=4),
)


class Scripted(LlmService):
    """A provider that plays one list of steps for each try: chunks to yield, errors to raise."""

    def __init__(self, *tries: tuple[LlmChunk | TgError, ...], options: ProviderOptions | None = None) -> None:
        super().__init__("scripted", options)
        self.plays = list(tries)
        self.calls: list[float] = []
        self.requests: list[TextCompletionRequest] = []
        self.running = 0

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        steps = self.plays[min(len(self.calls), len(self.plays) - 1)]
        self.calls.append(time.monotonic())
        self.requests.append(request)
        self.running += 1
        try:
            for step in steps:
                await asyncio.sleep(0)
                if isinstance(step, TgError):
                    raise step
                yield step
        finally:
            self.running -= 1


class Whole(LlmService):
    """A provider that knows whole answers only."""

    @override
    async def generate_content(self, request: TextCompletionRequest) -> LlmChunk:
        return LlmChunk(f"{request.system}: {request.prompt}", in_token=7, out_token=3, finish_reason="length")


async def ask(service: LlmService, request: TextCompletionRequest = STREAMING) -> list[TextCompletionResponse]:
    async with aclosing(service.on_request(request)) as stream:
        return [response async for response in stream]


async def test_streaming_gives_the_pieces_and_the_usage_last() -> None:
    service = Scripted(ANSWER)
    assert service.supports_streaming()
    assert await ask(service) == [
        TextCompletionResponse(response="Hel", model="big-1"),
        TextCompletionResponse(response="", reasoning="hm", model="big-1"),
        TextCompletionResponse(response="lo", tokens=(Token(1, "lo"),), model="big-1"),
        TextCompletionResponse(
            response="", in_token=7, out_token=7, model="big-1", finish_reason="stop", end_of_stream=True
        ),
    ]
    assert service.running == 0


async def test_the_same_override_gives_the_whole_answer_when_asked_for() -> None:
    """In one record for each piece of thinking: "Hel" was said before it."""
    assert await ask(Scripted(ANSWER), REQUEST) == [
        TextCompletionResponse(response="Hel", model="big-1"),
        TextCompletionResponse(
            response="lo",
            reasoning="hm",
            tokens=(Token(1, "lo"),),
            in_token=7,
            out_token=7,
            model="big-1",
            finish_reason="stop",
            end_of_stream=True,
        ),
    ]


async def test_a_provider_of_whole_answers_streams_one_piece() -> None:
    service = Whole("whole")
    assert not service.supports_streaming()
    last = TextCompletionResponse(
        response="be brief: hello", in_token=7, out_token=3, model="whole", finish_reason="length", end_of_stream=True
    )
    assert await ask(service, REQUEST) == [last]
    assert await ask(service) == [
        TextCompletionResponse(response="be brief: hello", model="whole"),
        TextCompletionResponse(
            response="", in_token=7, out_token=3, model="whole", finish_reason="length", end_of_stream=True
        ),
    ]


@pytest.mark.parametrize("request_", [REQUEST, STREAMING])
async def test_a_failure_before_the_first_chunk_is_tried_again(request_: TextCompletionRequest) -> None:
    service = Scripted((Unavailable("down", retry_after=0.0),), (RateLimited("busy", retry_after=0.0),), ANSWER)
    responses = await ask(service, request_)
    assert "".join(response.response or "" for response in responses) == "Hello"
    assert len(service.calls) == 3
    assert service.running == 0


async def test_tries_are_bounded() -> None:
    service = Scripted((Unavailable("down", retry_after=0.0),), options=ProviderOptions(tries=2))
    with pytest.raises(Unavailable, match="down"):
        await ask(service)
    assert len(service.calls) == 2


async def test_a_stream_that_ends_before_its_first_chunk_is_tried_again() -> None:
    service = Scripted((), ANSWER)
    assert (await ask(service))[-1].finish_reason == "stop"


@pytest.mark.parametrize("request_", [REQUEST, STREAMING])
async def test_a_failure_after_the_first_chunk_is_final(request_: TextCompletionRequest) -> None:
    service = Scripted((LlmChunk("Hel"), Unavailable("down", retry_after=0.0)), ANSWER)
    with pytest.raises(Unavailable, match="down"):
        await ask(service, request_)
    assert len(service.calls) == 1


async def test_a_cut_stream_is_an_error_after_what_was_sent() -> None:
    service = Scripted((LlmChunk("Hel"),), ANSWER)
    responses = service.on_request(STREAMING)
    assert (await anext(responses)).response == "Hel"
    with pytest.raises(IncompleteStream):
        await anext(responses)
    assert len(service.calls) == 1


@pytest.mark.parametrize("kind", [BadRequest, ProviderAuth, NotFound, ContentFilter, Timeout])
async def test_what_cannot_succeed_later_is_not_tried_again(kind: type[TgError]) -> None:
    service = Scripted((kind("no", retry_after=0.0),), ANSWER)
    with pytest.raises(kind, match="no"):
        await ask(service)
    assert len(service.calls) == 1


async def test_retry_after_is_honoured() -> None:
    service = Scripted((RateLimited("busy", retry_after=0.15),), ANSWER)
    await ask(service)
    first, second = service.calls
    assert 0.15 <= second - first < 0.15 + 1.0


async def test_a_long_retry_after_is_passed_on_in_place_of_a_retry() -> None:
    service = Scripted((RateLimited("busy", retry_after=MAX_RETRY_PAUSE_SECONDS + 1),), ANSWER)
    with pytest.raises(RateLimited) as caught:
        await ask(service)
    assert caught.value.retry_after == MAX_RETRY_PAUSE_SECONDS + 1
    assert len(service.calls) == 1


async def test_a_retry_after_beyond_the_first_contents_time_is_passed_on_too() -> None:
    service = Scripted((RateLimited("busy", retry_after=0.3),), ANSWER, options=QUICK)
    with pytest.raises(RateLimited):
        await ask(service)
    assert len(service.calls) == 1


async def test_a_provider_that_says_nothing_is_timed_out_and_closed() -> None:
    class Silent(LlmService):
        closed = False

        @override
        async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
            try:
                await asyncio.Event().wait()
                yield LlmChunk("never")
            finally:
                self.closed = True

    service = Silent("silent", QUICK)
    with pytest.raises(Timeout, match=r"no first token within 0\.02 s"):
        await ask(service)
    assert service.closed


async def test_leaving_early_closes_the_provider_at_once() -> None:
    service = Scripted(ANSWER)
    async with aclosing(service.on_request(STREAMING)) as stream:
        await anext(stream)
        assert service.running == 1
    assert service.running == 0


@pytest.mark.parametrize("model", [None, "", "scripted"])
async def test_the_provider_always_gets_the_models_name(model: str | None) -> None:
    service = Scripted(ANSWER)
    await ask(service, TextCompletionRequest(prompt="hello", model=model))
    assert [request.model for request in service.requests] == ["scripted"]


@pytest.mark.parametrize(
    ("request_", "kind", "message"),
    [
        (TextCompletionRequest(), BadRequest, "prompt is missing"),
        (TextCompletionRequest(prompt=""), BadRequest, "prompt is missing"),
        (TextCompletionRequest(prompt="hello", response_format="xml"), BadRequest, 'response_format must be "text" or'),
        (TextCompletionRequest(prompt="hello", model="other"), NotFound, "this flow serves scripted"),
    ],
)
async def test_a_wrong_request_never_reaches_the_provider(
    request_: TextCompletionRequest, kind: type[TgError], message: str
) -> None:
    service = Scripted(ANSWER)
    with pytest.raises(kind, match=message):
        await ask(service, request_)
    assert service.calls == []


def test_a_provider_that_overrides_nothing_is_a_mistake_at_once() -> None:
    class Nothing(LlmService):
        pass

    with pytest.raises(TypeError, match="Nothing must override generate_content or generate_content_stream"):
        Nothing("nothing")


class Lister(Scripted):
    """Has a list of models, and may never tell it."""

    def __init__(self, *, answers: bool) -> None:
        super().__init__(options=ProviderOptions(clocks=Clocks(first_token=0.05)))
        self.answers = answers

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        if not self.answers:
            await asyncio.Event().wait()
        return ModelInfo("a", "me", 5), ModelInfo("b")


LIST = TextCompletionRequest(operation="list-models")


async def test_models_are_listed() -> None:
    (answer,) = [record async for record in Lister(answers=True).on_request(LIST)]
    assert (answer.response, answer.end_of_stream) == ("", True)
    assert answer.models == (ModelInfo("scripted"),)


async def test_the_list_has_what_can_be_asked_by_the_name_that_it_is_asked_by() -> None:
    lister = Lister(answers=True)
    lister.upstream_model = "a"
    (answer,) = [record async for record in lister.on_request(LIST)]
    assert answer.models == (ModelInfo("scripted", "me", 5),)


async def test_a_list_that_does_not_come_is_not_waited_for() -> None:
    with pytest.raises(Timeout, match="list its models within"):
        await anext(Lister(answers=False).on_request(LIST))
