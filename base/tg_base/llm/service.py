"""TextCompletionRequest -> provider -> TextCompletionResponses: the base of every provider.

Chunk loop, final record, timeouts, retries before the first chunk, usage and cancellation are implemented here, once.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from time import time
from typing import Any, ClassVar, Generic, Self, cast, get_args

import msgspec
import stamina
from typing_extensions import TypeVar, get_original_bases, override

from tg_base.llm.answer_builder import Begun, answer_request
from tg_base.llm.continued_answer import CHAT_FEATURES, check_continuation
from tg_base.llm.core import CALL, LlmChunk, PassOn, join_chunks
from tg_base.llm.guard import guard_stream
from tg_base.llm.large_request import CheckedRequest, join_request, read_in_parts
from tg_base.llm.merged_streams import merge_streams
from tg_base.llm.operations import EDITS, Operator, operate
from tg_base.llm.options import ProviderOptions
from tg_base.llm.prepared_request import COMPLETION, PreparedRequest
from tg_base.llm.provider_call import PAID_OPERATIONS, ProviderCall, describe_request, measure_lists
from tg_base.llm.request_plan import EMULATED_FEATURES, GenerationPlan, check_completion
from tg_base.runtime import WorkerPool
from tg_base.server import ACCOUNT, Service
from tg_base.telemetry import Attribute, Spanning, span_names, trace
from tg_schema import TEXT_COMPLETION, TextCompletionRequest, TextCompletionResponse, TgError, Usage
from tg_schema.answer_collector import AnswerCollector
from tg_schema.completion import join_completions
from tg_schema.errors import BadRequest, NotFound, Timeout
from tg_schema.features import Feature, describe_missing
from tg_schema.text_completion import Operation

READING_FEATURES: frozenset[Feature] = frozenset({"developer", "reasoning_turns"})
"""Features that every provider has, because it ignores the parts that it does not know."""
CHECKED_OPERATIONS = frozenset({"count-tokens", "tokenize", "detokenize", "score", "embed"}) | EDITS
"""Operations whose requests are checked like those for an answer; a list of models has nothing to check."""
MAX_RETRY_PAUSE_SECONDS = 30.0
"""Longest pause before a retry, in seconds. If a provider asks for more, or for more than is left of the time to the
first content, its error goes to the client instead."""

AnyOptions = TypeVar("AnyOptions", bound=ProviderOptions, default=Any)


@dataclass(frozen=True, slots=True)
class Preset:
    """A provider under a name of its own: its class, and values that differ from the defaults of its options.

    `DEEPSEEK = Preset(OpenAiCompatible, {"default_base_url": "https://api.deepseek.com/v1"})` is the object of an entry
    point in the group `tokengrid.providers`. A model's table overrides the values.
    """

    kind: "type[LlmService[Any]]"
    options: Mapping[str, Any] = field(default_factory=dict)


class LlmService(Operator, Service[TextCompletionRequest, TextCompletionResponse], Generic[AnyOptions]):
    """A provider. Override exactly one of `generate_content` and `generate_content_stream`.

    `class Parrot(LlmService[ParrotOptions])` declares its options; without an argument they are `ProviderOptions`.

    Attributes:
        Options: the class of its options, from the argument of the class.
        options: the configured values.
        model: the model's name here, and the default of a request without `model`.
        upstream_model: the same model's name at the provider.
        provider: its name in the configuration, for logs and records of usage; without one its class.
        clocks: timeouts of the provider's stream.
        tries: attempts per request; a request is retried only before its first chunk.
        native_features: features that the provider has itself.
        optional_features: features that only some of its models have; the option `extra_features` adds them to a model.
        continued_features: the features of requests whose answer the provider can still continue after text that
            another process sent.
        features: the native ones and those that the base supplies; a request that needs another one is refused before
            the provider is called.
    """

    spec = TEXT_COMPLETION
    cools = True
    optional_features: ClassVar[frozenset[Feature]] = frozenset()
    continued_features: ClassVar[frozenset[Feature]] = CHAT_FEATURES

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
        self.provider = type(self).__name__
        self.clocks = options.clocks
        self.tries = options.tries
        self.capacity = self.find_capacity(options)
        self.native_features = self.find_native_features(options)
        self.features = self.find_features(options)
        self._workers = WorkerPool()
        self._checkers = WorkerPool()

    @classmethod
    def find_capacity(cls, options: AnyOptions) -> int:
        """How many requests the provider runs concurrently with these options."""
        return options.capacity or cls.capacity

    @classmethod
    def find_features(cls, options: ProviderOptions) -> frozenset[Feature]:
        """The features that it announces with these options, before it knows which features its model lacks."""
        native = cls.find_native_features(options)
        ranked: frozenset[Feature] = frozenset({"best_of"} if "logprobs" in native else ())
        return native | EMULATED_FEATURES | ranked | (READING_FEATURES - options.without)

    @classmethod
    def find_native_features(cls, options: ProviderOptions) -> frozenset[Feature]:
        """The features that the provider has itself with these options.

        Raises:
            BadRequest: none of its models has one of `extra_features`.
        """
        if unknown := options.extra_features - cls.optional_features:
            known = ", ".join(sorted(cls.optional_features)) or "none"
            raise BadRequest(
                f"extra_features: no model of this provider has {', '.join(sorted(unknown))}; possible are: {known}"
            ).at("extra_features")
        return (cls.features | options.extra_features) - options.without

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

    @classmethod
    def find_adapters(cls, options: AnyOptions) -> Mapping[str, str]:
        """The LoRA adapters that these options name, and where each is from."""
        return {}

    @property
    @override
    def adapters(self) -> Mapping[str, str]:
        return self.find_adapters(self.options)

    def supports_streaming(self) -> bool:
        """Whether the provider streams: true if `generate_content_stream` is overridden."""
        return type(self).generate_content_stream is not LlmService.generate_content_stream

    async def generate_content(self, request: TextCompletionRequest) -> LlmChunk:
        """Generate the whole answer, as one chunk with its `finish_reason`. `request.model` is always set.

        One chunk cannot hold several answers, nor thinking between pieces of text: a provider that has these overrides
        `generate_content_stream`.

        Raises:
            TgError: one of `tg_schema.errors`; each provider translates the errors of its SDK.
        """
        answer = AnswerCollector(join_chunks)
        async with aclosing(self.generate_content_stream(request)) as stream:
            async for chunk in stream:
                answer.add(chunk)
        pieces = answer.records()
        return join_completions(LlmChunk("".join([piece.text for piece in pieces])), pieces)

    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        """Generate the answer chunk by chunk; the one with the provider's terminal marker has a `finish_reason`.

        Closing the generator must close the provider's connection. Raises as `generate_content`.

        A provider whose SDK streams words overrides it like this:

            async with self._client.stream(request.prompt) as words:
                async for word in words:
                    yield LlmChunk(word)
            yield LlmChunk(finish_reason="stop", out_token=words.count)
        """
        yield await self.generate_content(request)

    @override
    def on_request(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        if request.operation not in COMPLETION:
            return self._operate(request)
        if isinstance(request, PreparedRequest) and request.plan is not None:
            plan = request.plan
        else:
            request = self.check(request)
            plan = GenerationPlan.of(request, self.native_features)
        several = len(plan.requests) > 1
        begin = (
            partial(self._start_merged, plan.requests)
            if several
            else partial(self._start, plan.requests[0], plan.generated)
        )
        # Return that generator itself: with one of our own, each chunk would pass through both.
        return answer_request(request, plan, begin, self._checkers)

    async def _operate(self, request: TextCompletionRequest) -> AsyncGenerator[TextCompletionResponse, None]:
        unchecked = request.operation in CHECKED_OPERATIONS and not isinstance(request, PreparedRequest)
        checked = self.check(request) if unchecked else request
        is_paid = request.operation in PAID_OPERATIONS
        call = self._begin_call(request) if is_paid else ProviderCall(model=self.model, provider=self.provider)
        # A client may have written anything.
        known = request.operation if request.operation and request.operation in get_args(Operation) else "unknown"
        operation = span_names.OPERATIONS.get(known, known)
        about = self._describe() | {span_names.OPERATION: operation}
        records: Sequence[TextCompletionResponse] | None = None
        try:
            with Spanning(f"{operation} {self.upstream_model}", "client", about):
                records = await operate(self, checked)
            if is_paid:
                call.counts = [*msgspec.structs.astuple(Usage.total(records))]
        finally:
            call.end(sys.exception() if records is None else None)
        for record in records:
            yield record

    @override
    async def read(self, body: bytes) -> TextCompletionRequest:
        return await join_request(await self._workers.call(read_in_parts, body))

    @override
    async def aclose(self) -> None:
        """As `Service.aclose`. An override must call this method too."""
        await self._workers.aclose()
        await self._checkers.aclose()

    def check(self, request: TextCompletionRequest) -> TextCompletionRequest:
        """The request, with its model.

        Raises:
            BadRequest: its fields are invalid, or it needs a feature that this provider lacks.
            NotFound: it is for another model.
        """
        needed = request.features
        if not isinstance(request, CheckedRequest):
            check_completion(request)
        if request.model not in {None, "", self.model}:
            raise NotFound(f"no model of that name is served here; this flow serves {self.model}")
        if missing := needed - self.features:
            raise BadRequest(describe_missing(missing))
        if request.continuation:
            check_continuation(request, self.continued_features)
        return msgspec.structs.replace(request, model=self.model)

    async def _start_merged(self, requests: Sequence[TextCompletionRequest]) -> Begun:
        """The first chunk and the rest of all of the provider's streams, merged; the caller closes it."""
        stream = merge_streams([self._read_stream(request) for request in requests], self.capacity)
        return await anext(stream), stream

    async def _read_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        first, rest = await self._start(request)
        async with aclosing(rest):
            yield first
            async for chunk in rest:
                yield chunk

    async def _start(self, request: TextCompletionRequest, answers: int = 1) -> Begun:
        """The first chunk and the rest of one of the provider's streams; retries until there is one."""
        time = asyncio.get_running_loop().time
        until = time() + self.clocks.first_token
        stream = self._guarded(request, answers)
        try:
            # If this fails or is cancelled, the stream has closed itself.
            return await anext(stream), stream
        except TgError as error:
            # Raise a final error here: raised within the retry, it would form a cycle that keeps the request in memory.
            if _retry(error, until - time()) is False:
                raise
            return await self._try_again(request, answers, error, until)

    async def _try_again(self, request: TextCompletionRequest, answers: int, failed: TgError, until: float) -> Begun:
        """Retry until the loop time `until`. `failed` ended the first attempt; it is raised if it forbids a retry."""
        time = asyncio.get_running_loop().time
        async for attempt in stamina.retry_context(
            on=lambda error: _retry(error, until - time()),
            attempts=self.tries,
            timeout=None,
            wait_initial=0.2,
            wait_max=5.0,
        ):
            # Only the first chunk is within the retry. Once a client has text, a second attempt would repeat or
            # contradict it.
            with attempt:
                # The first attempt was made outside, because nearly all succeed, and this costs a tenth of a request.
                if attempt.num == 1:
                    raise failed
                stream = self._guarded(request, answers)
                return await anext(stream), stream
        raise failed

    def _guarded(self, request: TextCompletionRequest, answers: int) -> AsyncGenerator[LlmChunk, PassOn | None]:
        stream, call = self.generate_content_stream(request), self._begin_call(request)
        if trace.share is not None and trace.is_recorded():
            call.record_span(self._describe() | describe_request(request))
        return guard_stream(stream, self.clocks, answers, call)

    def _describe(self) -> dict[str, Attribute]:
        """The attributes of each span of a call."""
        return {
            span_names.PROVIDER: self.provider,
            span_names.REQUEST_MODEL: self.upstream_model,
            span_names.MODEL: self.model,
        }

    def _begin_call(self, request: TextCompletionRequest) -> ProviderCall:
        account = ACCOUNT.get()
        call = ProviderCall(
            account=account,
            operation=request.operation or "completion",
            model=self.model,
            upstream_model=self.upstream_model,
            provider=self.provider,
            began=time(),
        )
        if account is None:
            return call
        if account.failed:
            account.note_retry()
        # Most requests have only these two.
        size = len(request.prompt or "") + len(request.system or "")
        if request.messages or request.tools or request.prompt_ids or request.texts or request.id_lists:
            size += measure_lists(request, account)
        call.prompt_bytes = size or account.size
        CALL.set(call)
        return call


def _retry(error: Exception, left: float) -> bool | float:
    """Whether to retry within the seconds that are left, and after how many if the provider said so."""
    # A Timeout is left to the client: it has waited long enough, and a second attempt would begin while the provider
    # may still be busy with the first one.
    if not isinstance(error, TgError) or not error.retryable or isinstance(error, Timeout) or left <= 0:
        return False
    if error.retry_after is None:
        return True
    return error.retry_after if error.retry_after <= min(MAX_RETRY_PAUSE_SECONDS, left) else False
