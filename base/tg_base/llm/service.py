"""TextCompletionRequest -> provider -> TextCompletionResponses: the base of every provider.

Chunk loop, final record, timeouts, retries before the first chunk, usage and cancellation are implemented here, once.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, ClassVar, Generic, Self, cast, get_args

import msgspec
import stamina
from typing_extensions import TypeVar, get_original_bases, override

from tg_base.llm.answer_form import AnswerForm
from tg_base.llm.core import LlmChunk, join_chunks
from tg_base.llm.guard import guard_stream
from tg_base.llm.options import ProviderOptions
from tg_base.llm.validation import check_completion
from tg_base.server import Service
from tg_base.telemetry import TOKENS
from tg_schema import TEXT_COMPLETION, ModelInfo, TextCompletionRequest, TextCompletionResponse, TgError
from tg_schema.answer_collector import AnswerCollector
from tg_schema.deltas import MAX_COUNT
from tg_schema.errors import BadRequest, NotFound, ProtocolError, SchemaViolation, Timeout

MAX_RETRY_AFTER_SECONDS = 30.0
"""Longest pause before a retry, in seconds. If a provider asks for more, its error goes to the client instead."""

AnyOptions = TypeVar("AnyOptions", bound=ProviderOptions, default=Any)


class LlmService(Service[TextCompletionRequest, TextCompletionResponse], Generic[AnyOptions]):
    """A provider. Override exactly one of `generate_content` and `generate_content_stream`.

    `class Parrot(LlmService[ParrotOptions])` declares its options; without an argument they are `ProviderOptions`.

    Attributes:
        Options: the class of its options, from the argument of the class.
        options: the configured values.
        model: the model's name here, and the default of a request without `model`.
        upstream_model: the same model's name at the provider.
        clocks: timeouts of the provider's stream.
        tries: attempts per request; a request is retried only before its first chunk.
        features: features of the provider; a request for another one is refused before the provider is called.
    """

    spec = TEXT_COMPLETION

    Options: ClassVar[type[ProviderOptions]] = ProviderOptions

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in get_original_bases(cls):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, ProviderOptions):
                    cls.Options = argument

    def __init__(self, model: str, options: AnyOptions | None = None) -> None:
        if type(self).generate_content is LlmService.generate_content and not self.supports_streaming():
            raise TypeError(f"{type(self).__name__} must override generate_content or generate_content_stream")
        options = cast(AnyOptions, self.Options()) if options is None else options
        self.options: AnyOptions = options
        self.model = model
        self.upstream_model = options.upstream_name(model)
        self.clocks = options.clocks
        self.tries = options.tries
        self.capacity = options.capacity or type(self).capacity
        self.features = type(self).features - options.without

    @classmethod
    async def open(cls, model: str, options: AnyOptions) -> Self:
        """Create the provider for `model`; override it if that takes time (an import, a model to load).

        Raises:
            TgError: it cannot be created; the message says what to do (which variable, which file).
        """
        return cls(model, options)

    @classmethod
    async def rehearse(cls, model: str, options: AnyOptions) -> None:
        """Check that `open` would succeed, and keep nothing open; override it if `open` loads much.

        Raises:
            TgError: as `open`.
        """
        await (await cls.open(model, options)).aclose()

    def supports_streaming(self) -> bool:
        """Whether the provider streams: true if `generate_content_stream` is overridden."""
        return type(self).generate_content_stream is not LlmService.generate_content_stream

    async def models(self) -> tuple[ModelInfo, ...]:
        """The provider's list of models; override it if the API has one. Raises as `generate_content`."""
        return (ModelInfo(self.model),)

    async def generate_content(self, request: TextCompletionRequest) -> LlmChunk:
        """Generate the whole answer, as one chunk with its `finish_reason`. `request.model` is always set.

        Raises:
            TgError: one of `tg_schema.errors`; each provider translates the errors of its SDK.
        """
        answer = _collector()
        async with aclosing(self.generate_content_stream(request)) as stream:
            async for chunk in stream:
                answer.add(chunk)
        return answer.records()[0]

    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        """Generate the answer chunk by chunk; the one with the provider's terminal marker has a `finish_reason`.

        Closing the generator must close the provider's connection. Raises as `generate_content`.
        """
        yield await self.generate_content(request)

    @override
    async def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        if request.operation not in {None, "", "completion"}:
            yield await self._list_models(request.operation)
            return
        request = self._check(request)
        form = await AnswerForm.of(request)
        totals = _Totals()
        kept = _collector()
        keeps = form is not None or not request.streaming
        try:
            async with self._start(request) as (first, rest):
                chunk: LlmChunk | None = first
                while chunk is not None:
                    totals.add(chunk)
                    if keeps:
                        kept.add(chunk)
                    if request.streaming and chunk.has_content:
                        yield TextCompletionResponse(
                            response=chunk.text,
                            reasoning=chunk.reasoning,
                            tokens=chunk.tokens,
                            tool_calls=chunk.tool_calls,
                            model=chunk.model or request.model,
                        )
                    chunk = await anext(rest, None)
        finally:
            # Also for a cancelled or failed stream: the provider bills the tokens up to there.
            totals.record(self.model)
        whole = kept.records()[0] if keeps else LlmChunk()
        if form is not None and totals.finish_reason == "stop" and not whole.tool_calls:
            whole = await _in_form(form, whole, told=bool(request.streaming))
        if request.streaming:
            whole = LlmChunk()
        yield TextCompletionResponse(
            response=whole.text,
            reasoning=whole.reasoning,
            tokens=whole.tokens,
            tool_calls=whole.tool_calls,
            cached_token=totals.cached_token,
            reasoning_token=totals.reasoning_token,
            in_token=totals.in_token,
            out_token=totals.out_token,
            model=totals.model or request.model,
            finish_reason=totals.finish_reason,
            end_of_stream=True,
        )

    async def _list_models(self, operation: str) -> TextCompletionResponse:
        if operation != "list-models":
            raise BadRequest('operation must be "completion" or "list-models"')
        try:
            async with asyncio.timeout(self.clocks.first_token):
                models = await self.models()
        except TimeoutError:
            raise Timeout(f"the provider did not list its models within {self.clocks.first_token:g} s") from None
        if any(not 0 <= model.created <= MAX_COUNT for model in models):
            raise ProtocolError("the provider's list of models has a time out of range; check base_url")
        # This service would refuse the provider's other models, so it lists only its own one, by its name here.
        known = next((info for info in models if info.id in {self.model, self.upstream_model}), ModelInfo(self.model))
        listed = (msgspec.structs.replace(known, id=self.model),)
        return TextCompletionResponse(response="", models=listed, end_of_stream=True)

    def _check(self, request: TextCompletionRequest) -> TextCompletionRequest:
        check_completion(request)
        if request.model not in {None, "", self.model}:
            raise NotFound(f"no model of that name is served here; this flow serves {self.model}")
        if missing := request.features - self.features:
            what = ", ".join(sorted(missing))
            raise BadRequest(f"the provider of {self.model} can't do this: {what}; leave it out, or ask another model")
        return msgspec.structs.replace(request, model=self.model)

    @asynccontextmanager
    async def _start(
        self, request: TextCompletionRequest
    ) -> AsyncIterator[tuple[LlmChunk, AsyncGenerator[LlmChunk, None]]]:
        """Enter the provider's stream and yield its first chunk and the rest; retry until there is a first chunk."""
        async for attempt in stamina.retry_context(
            on=_retry, attempts=self.tries, timeout=self.clocks.first_token, wait_initial=0.2, wait_max=5.0
        ):
            stream = guard_stream(self.generate_content_stream(request), self.clocks)
            # Only the first chunk is within the retry. Once a client has text, a second attempt would repeat or
            # contradict it.
            with attempt:
                first = await anext(stream)
        async with aclosing(stream):
            yield first, stream


class _Totals:
    """The totals of a stream's chunks, except the text."""

    def __init__(self) -> None:
        self.in_token: int | None = None
        self.out_token: int | None = None
        self.cached_token: int | None = None
        self.reasoning_token: int | None = None
        self.model: str | None = None
        self.finish_reason: str | None = None

    def add(self, chunk: LlmChunk) -> None:
        """Add a chunk."""
        if chunk.in_token is not None:
            self.in_token = (self.in_token or 0) + chunk.in_token
        if chunk.out_token is not None:
            self.out_token = (self.out_token or 0) + chunk.out_token
        if chunk.cached_token is not None:
            self.cached_token = (self.cached_token or 0) + chunk.cached_token
        if chunk.reasoning_token is not None:
            self.reasoning_token = (self.reasoning_token or 0) + chunk.reasoning_token
        self.model = chunk.model or self.model
        self.finish_reason = self.finish_reason or chunk.finish_reason

    def record(self, model: str) -> None:
        """Record the known usage in the metrics, including that of cancelled streams."""
        TOKENS.labels(model, "in").inc(self.in_token or 0)
        TOKENS.labels(model, "out").inc(self.out_token or 0)


async def _in_form(form: AnswerForm, whole: LlmChunk, *, told: bool) -> LlmChunk:
    """The answer without text around its JSON. If that text was `told` (streamed) already, it is an error."""
    text = await form.check_answer(whole.text)
    if told and text != whole.text:
        raise SchemaViolation("the model's answer has other text around its JSON; ask again, or ask another model")
    return msgspec.structs.replace(whole, text=text)


def _collector() -> AnswerCollector[LlmChunk]:
    return AnswerCollector(lambda chunks: (join_chunks(chunks),))


def _retry(error: Exception) -> bool | float:
    """Whether to retry, and after how many seconds if the provider said so."""
    # A Timeout is left to the client: it has waited long enough, and a second attempt would begin while the provider
    # may still be busy with the first one.
    if not isinstance(error, TgError) or not error.retryable or isinstance(error, Timeout):
        return False
    if error.retry_after is None:
        return True
    return error.retry_after if error.retry_after <= MAX_RETRY_AFTER_SECONDS else False
