"""TextCompletionRequest -> a model in this process: concurrent streams on its engines."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import msgspec
from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions, merge_streams
from tg_base.runtime import take_turns
from tg_base.telemetry import trace
from tg_llama.begun_answer import cut_begun
from tg_llama.chat import PromptTokenizer
from tg_llama.core import SamplerSettings
from tg_llama.engine import Begin, Ending, Engine, EnginePool, Generation, Job, read_answer
from tg_llama.lora import Lease
from tg_llama.request import (
    alternating_texts,
    check_ids,
    check_sampling,
    find_call_grammar,
    find_grammar,
    keep_end,
    needs_tools,
    offered_tools,
    read_calls,
)
from tg_schema import ModelInfo, Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest
from tg_schema.features import CONTINUATION, Feature


class SamplingOptions(ProviderOptions, frozen=True, kw_only=True):
    """The options of every model in the process.

    Attributes:
        path: the model's file.
        temperature: the default for requests without one; so are `top_k` and `top_p`.
    """

    path: str = ""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.8
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 40
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95


OwnOptions = TypeVar("OwnOptions", bound=SamplingOptions)


class InProcess(LlmService[OwnOptions]):
    """A provider whose model runs in this process.

    Attributes:
        engine: evaluates the model; its `stats()` have totals and the current state.
        max_counted_tokens: tokens up to which a prompt beyond the context is counted. Counting more could delay other
            prompts for seconds.
    """

    max_counted_tokens: ClassVar[int] = 200_000
    optional_features = frozenset({CONTINUATION})
    continued_features = frozenset(get_args(Feature))

    def __init__(self, model: str, options: OwnOptions, engine: EnginePool[Any], tokenizer: PromptTokenizer) -> None:
        super().__init__(model, options)
        self.engine = engine
        self._tokenizer = tokenizer
        self._pieces = tokenizer.pieces_with_marks()

    @override
    def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        if request.answers > 1:
            return self._answers(request)
        return self._read(partial(self._begin, request), request)

    def _read(self, begin: Begin, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        answer = read_answer(begin)
        tools = self._tokenizer.tools
        if tools is None or not offered_tools(request):
            return answer
        return read_calls(answer, tools, request, "".join(request.continuation))

    async def _begin(self, request: TextCompletionRequest) -> tuple[Generation, str | None]:
        job = await self._job(request)
        return await self._submit(job, request.adapter), self._echo(request, job)

    async def _answers(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        """Several answers to one prompt, all by one engine, which evaluates the prompt once."""
        job = await self._job(request)
        lease = await self._lease(request.adapter)
        first, echo = self._generation(job, lease and lease.again()), self._echo(request, job)
        try:
            engine = self.engine.submit(first)
            others = [partial(self._follow, engine, job, lease, echo, index) for index in range(1, request.answers)]
            answers = [self._read(begin, request) for begin in (partial(begun, first, echo), *others)]
            async with aclosing(merge_streams(answers, self.capacity)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            first.cancel()
            if lease is not None:
                lease.release()

    async def _follow(
        self, engine: Engine, job: Job, lease: Lease | None, echo: str | None, index: int
    ) -> tuple[Generation, str | None]:
        job = msgspec.structs.replace(job, settings=job.settings.numbered(index))
        generation = self._generation(job, lease and lease.again(), counted=False)
        engine.follow(generation)
        return generation, echo

    async def _lease(self, adapter: str | None) -> Lease | None:
        return None if adapter is None else await self.engine.adapters.acquire(adapter)

    async def _submit(self, job: Job, adapter: str | None) -> Generation:
        generation = self._generation(job, await self._lease(adapter))
        if job.begun and len(job.begun) >= min(job.max_tokens, self.engine.context_length - len(job.prompt)):
            generation.leave()
            generation.put(Ending("length"))
        else:
            self.engine.submit(generation)
        return generation

    def _generation(self, job: Job, lease: Lease | None, *, counted: bool = True) -> Generation:
        pieces = self._pieces if job.shows_marks else self.engine.model.pieces
        caller = trace.find_caller()
        return Generation(job, pieces, lease, counted=counted, caller=caller)

    def _echo(self, request: TextCompletionRequest, job: Job) -> str | None:
        return (request.prompt or self._text(job.prompt)) if request.echo else None

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return len(await self._prompt(request, self.max_counted_tokens))

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        model = self.engine.model
        return (
            ModelInfo(
                self.model,
                context_length=self.engine.context_length,
                vocabulary=model.vocabulary,
                dimensions=model.dimensions,
                end_ids=tuple(sorted(model.end_tokens)),
            ),
        )

    async def _job(self, request: TextCompletionRequest) -> Job:
        if not self.engine.model.writes:
            raise BadRequest("this model gives vectors alone, and writes no text: embed with it, or ask another model")
        sampling = request.sampling or Sampling()
        check_sampling(sampling, self.engine.model.vocabulary)
        options = self.options
        settings = await take_turns(
            SamplerSettings.of(sampling, temperature=options.temperature, top_k=options.top_k, top_p=options.top_p)
        )
        if settings.logit_bias is not None:
            settings.logit_bias.check(self.engine.model.vocabulary)
        return Job(
            prompt=await self._prompt(request, self.engine.context_length),
            settings=settings,
            max_tokens=self.engine.context_length if sampling.max_tokens is None else sampling.max_tokens,
            stop=tuple(sampling.stop),
            stop_ids=frozenset(sampling.stop_ids),
            keep_stop=sampling.keep_stop,
            min_tokens=sampling.min_tokens or 0,
            ignore_eos=sampling.ignore_eos,
            end_token=sampling.end_token,
            logprobs=sampling.logprobs,
            prompt_logprobs=sampling.prompt_logprobs,
            grammar=await self._grammar(request),
            shows_marks=bool(offered_tools(request)),
            begun=await asyncio.to_thread(cut_begun, self.engine.model, request, self.engine.context_length)
            if request.continuation
            else (),
        )

    async def _grammar(self, request: TextCompletionRequest) -> str | None:
        tokenizer, forced = self._tokenizer, None
        if tokenizer.tools is not None and request.tools:
            marks = tokenizer.find_marks()
            forced = await asyncio.to_thread(find_call_grammar, request, tokenizer.tools, marks)
        return await find_grammar(request, self.engine.model.grammars, forced)

    async def _prompt(self, request: TextCompletionRequest, limit: int) -> tuple[int, ...]:
        if request.prompt_ids:
            ids = keep_end(request.prompt_ids, request.max_prompt_tokens, self.engine.model.begin)
            check_ids("the prompt", ids, self.engine.model.vocabulary)
            return ids
        tokenizer = self._tokenizer
        if needs_tools(request):
            tools = offered_tools(request)
            return await asyncio.to_thread(tokenizer.tool_tokens, request.system_text, request.turns, tools, limit)
        if request.raw:
            limit = limit if request.max_prompt_tokens is None else self.max_counted_tokens
            tokens = await asyncio.to_thread(tokenizer.raw_tokens, request.prompt or "", limit)
            return keep_end(tokens, request.max_prompt_tokens, self.engine.model.begin)
        texts = alternating_texts(request.turns)
        return await asyncio.to_thread(tokenizer.tokens, request.system_text, texts, limit)

    def _text(self, ids: tuple[int, ...]) -> str:
        return b"".join([self.engine.model.pieces[token] for token in ids]).decode("utf-8", "replace")

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.to_thread(self.engine.close)


async def begun(generation: Generation, echo: str | None) -> tuple[Generation, str | None]:
    """A generation that was already submitted; see `Begin`."""
    return generation, echo
