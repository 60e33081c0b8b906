"""TextCompletionRequest -> llama.cpp in this process: concurrent streams on one model."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Self

import msgspec
from typing_extensions import override

from tg_base.llm import Detokenized, Embeddings, LlmChunk, LlmService, ProviderOptions, Scores, merge_streams
from tg_base.runtime import start_daemon_thread, take_turns
from tg_base.telemetry import MODEL_LOADS, trace
from tg_llama.chat import PromptTokenizer
from tg_llama.core import Mailbox, Model, ModelLoad, State, token_data
from tg_llama.engine import CUT_ADVICE, Begin, EnginePool, Generation, Job, read_answer
from tg_llama.lora import Lease, find_loaded_file
from tg_llama.opening import open_engines, rehearse_engines
from tg_llama.options import LlamaCppOptions
from tg_llama.request import (
    alternating_texts,
    check_ids,
    check_sampling,
    find_call_grammar,
    find_grammar,
    keep_end,
    measure_texts,
    needs_tools,
    offered_tools,
    read_calls,
)
from tg_llama.sampling import SamplerSettings
from tg_schema import COMMON_FEATURES, ModelInfo, Sampling, TextCompletionRequest, TgError, Token
from tg_schema.errors import BadRequest, ContextLengthExceeded, TooLarge
from tg_schema.features import Feature

LONG_TEXT_CHARACTERS = 8_000
"""Characters from which a prompt is tokenized in another thread; a shorter one takes less than a millisecond."""

MANY_MESSAGES = 100
"""Messages from which on a chat is made in another thread."""

MAX_COUNTED_TOKENS = 200_000
"""Tokens up to which a prompt beyond the context is counted; more could hold up the other prompts for seconds."""

MAX_EMBEDDED_CHARACTERS = 2_000_000
"""The most characters of all texts in a request to embed."""


_FEATURES: frozenset[Feature] = frozenset(
    {
        *("n", "min_p", "typical_p", "repetition_penalty", "logit_bias", "packed_bias", "packed_floats"),
        *("min_tokens", "ignore_eos", "stop_ids", "keep_stop", "end_token"),
        *("raw", "prompt_ids", "max_prompt_tokens", "echo", "choice", "regex"),
        *("count_tokens", "tokenize", "detokenize", "token_texts"),
        *("score", "prompt_logprobs"),
        *("embed", "embed_ids", "pooling", "truncate"),
        *("parallel_tool_calls", "allowed_tools"),
    }
)


_ENCODER_FEATURES: frozenset[Feature] = frozenset(
    {
        *("embed", "embed_ids", "pooling", "truncate", "dimensions"),
        *("count_tokens", "tokenize", "detokenize", "token_texts"),
    }
)
"""The features of a model that only gives vectors."""

_ADAPTER_FEATURES: frozenset[Feature] = frozenset({"adapter", "load_adapter"})
"""The further features of a model with LoRA adapters."""


class LlamaCpp(LlmService[LlamaCppOptions]):
    """The `llama-cpp` provider. Create it with `open`, which loads the model.

    Attributes:
        engine: evaluates the model; its `stats()` have totals and the present state.
    """

    features = (COMMON_FEATURES - {"images"}) | _FEATURES
    optional_features = frozenset({"dimensions"})

    def __init__(self, model: str, options: LlamaCppOptions, engine: EnginePool, tokenizer: PromptTokenizer) -> None:
        super().__init__(model, options)
        self.engine = engine
        # Without a chat template for several turns, a model cannot distinguish earlier answers from the prompt.
        if not tokenizer.knows_history:
            self.features -= {"history"}
        if tokenizer.tools is None:
            self.features -= {"tools"}
        if not engine.model.writes:
            self.features &= _ENCODER_FEATURES
        self._tokenizer = tokenizer
        self._end_watch = MODEL_LOADS.watch(lambda: engine.look(model))
        self._pieces = tokenizer.pieces_with_marks()

    @classmethod
    @override
    def find_capacity(cls, options: LlamaCppOptions) -> int:
        return options.slots

    @classmethod
    @override
    def find_native_features(cls, options: ProviderOptions) -> frozenset[Feature]:
        features = super().find_native_features(options)
        if isinstance(options, LlamaCppOptions) and (options.adapters or options.adapter_folder):
            features |= _ADAPTER_FEATURES if options.adapter_folder else _ADAPTER_FEATURES - {"load_adapter"}
        return features - options.without

    @classmethod
    @override
    def find_adapters(cls, options: LlamaCppOptions) -> Mapping[str, str]:
        return options.adapters

    @property
    @override
    def adapters(self) -> Mapping[str, str]:
        return self.engine.adapters.roots

    @classmethod
    @override
    async def open(cls, model: str, options: LlamaCppOptions) -> Self:
        load = ModelLoad()
        # A daemon thread: a download may take hours, and a process that is told to end must not wait for it.
        opening = start_daemon_thread(lambda: open_engines(options, load), f"load {model}")
        try:
            engine, tokenizer = await asyncio.shield(opening)
        except asyncio.CancelledError:
            load.abort()
            opening.add_done_callback(_close_late)  # the load may have finished: free its result
            raise
        return cls(model, options, engine, tokenizer)

    @classmethod
    @override
    async def rehearse(cls, model: str, options: LlamaCppOptions) -> None:
        await start_daemon_thread(lambda: rehearse_engines(options), f"rehearse {model}")

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
        return read_calls(answer, tools, request)

    async def _begin(self, request: TextCompletionRequest) -> tuple[Generation, str | None]:
        job = await self._job(request)
        return await self._submit(job, request.adapter), self._echo(request, job)

    async def _answers(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        """Several answers to one prompt: the first one evaluates it, and the others begin with a copy of its memory."""
        job = msgspec.structs.replace(await self._job(request), shared=True)
        lease = await self._lease(request.adapter)
        first, echo = self._generation(job, lease=lease and lease.again()), self._echo(request, job)
        begins = [
            partial(_begun, first, echo),
            *[partial(self._follow, first, lease, echo, i) for i in range(1, request.answers)],
        ]
        try:
            _submit(self.engine, first)
            answers = [self._read(begin, request) for begin in begins]
            async with aclosing(merge_streams(answers, self.capacity)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            first.cancel()
            if lease is not None:
                lease.release()

    async def _follow(
        self, first: Generation, lease: Lease | None, echo: str | None, index: int
    ) -> tuple[Generation, str | None]:
        settings = first.job.settings.numbered(index)
        job = msgspec.structs.replace(first.job, settings=settings, prompt_logprobs=None, shared=False)
        evaluated = await first.shared_prompt()
        # The prompt's tokens are ready before the memory that was awaited.
        generation = self._generation(job, evaluated, lease and lease.again(), first.prompt_tokens)
        self.engine.follow(generation)
        return generation, echo

    async def _lease(self, adapter: str | None) -> Lease | None:
        return None if adapter is None else await self.engine.adapters.acquire(adapter)

    async def _submit(self, job: Job, adapter: str | None) -> Generation:
        generation = self._generation(job, lease=await self._lease(adapter))
        _submit(self.engine, generation)
        return generation

    def _generation(
        self,
        job: Job,
        evaluated: State | None = None,
        lease: Lease | None = None,
        prompt_tokens: tuple[Token, ...] = (),
    ) -> Generation:
        pieces = self._pieces if job.shows_marks else self.engine.model.pieces
        caller = trace.find_caller()
        return Generation(job, pieces, Mailbox.here(), evaluated, lease, prompt_tokens=prompt_tokens, caller=caller)

    def _echo(self, request: TextCompletionRequest, job: Job) -> str | None:
        return (request.prompt or self._text(job.prompt)) if request.echo else None

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return len(await self._prompt(request, MAX_COUNTED_TOKENS))

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        if not request.texts:
            return await self._prompt(request, MAX_COUNTED_TOKENS)
        if sum(map(len, request.texts)) > MAX_COUNTED_TOKENS:
            raise TooLarge(f"texts may have {MAX_COUNTED_TOKENS} characters altogether")
        cut = self.engine.model.tokenize
        return tuple([token for text in request.texts for token in await asyncio.to_thread(cut, text, special=False)])

    @override
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        model, ids = self.engine.model, request.prompt_ids
        check_ids("the tokens", ids, model.vocabulary)
        tokens = await asyncio.to_thread(_all_data, model, ids) if request.token_texts else ()
        return Detokenized(await asyncio.to_thread(model.detokenize, ids), tokens)

    @override
    async def score(self, request: TextCompletionRequest) -> Scores:
        check_ids("scored", request.scored, self.engine.model.vocabulary)
        job = msgspec.structs.replace(await self._job(request), scored=request.scored, stop=(), grammar=None)
        if not job.evaluated:
            return Scores((), (token_data(self.engine.model, job.prompt[0]),), 1)
        generation = await self._submit(job, request.adapter)
        async with aclosing(read_answer(partial(_begun, generation, None))) as stream:
            chunks = [chunk async for chunk in stream]
        return Scores(
            tuple([token for chunk in chunks for token in chunk.tokens]),
            tuple([token for chunk in chunks for token in chunk.prompt_tokens]),
            len(job.prompt) + len(request.scored),
        )

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

    @override
    async def embed(self, request: TextCompletionRequest) -> Embeddings:
        model = self.engine.model
        if request.adapter is not None:
            raise BadRequest("adapter: vectors are the base model's here; leave it out")
        for ids in request.id_lists:
            check_ids("each text", ids, model.vocabulary)
        texts = list(request.id_lists)
        if request.texts:
            self._check_embedded(request)
            texts = await asyncio.to_thread(_cut_texts, model, tuple(request.texts))
        if not all(texts):
            raise BadRequest("texts: one of them has no token of this model; leave it out")
        if request.truncate:
            texts = [_truncated(model, ids, self.engine.context_length) for ids in texts]
        if (request.dimensions or 1) > model.dimensions:
            raise BadRequest(f"dimensions: this model's vectors have {model.dimensions} numbers; ask for fewer")
        vectors = await self.engine.embed(texts, request.pooling or model.pooling, request.dimensions)
        return Embeddings(tuple(vectors), sum(map(len, texts)))

    @override
    async def load_adapter(self, request: TextCompletionRequest) -> None:
        name = request.adapter or ""
        file = find_loaded_file(self.options.adapter_folder, name, request.adapter_path or "")
        await self.engine.adapters.add(name, file)
        self.announce()

    @override
    async def unload_adapter(self, request: TextCompletionRequest) -> None:
        self.engine.adapters.remove(request.adapter or "")
        self.announce()

    def _check_embedded(self, request: TextCompletionRequest) -> None:
        # A cheap bound, before a huge text is tokenized.
        longest = self.engine.context_length * self.engine.model.longest_piece
        if not request.truncate and max(map(len, request.texts)) > longest:
            raise ContextLengthExceeded.of_counts(None, self.engine.context_length, CUT_ADVICE)
        if sum(map(len, request.texts)) > MAX_EMBEDDED_CHARACTERS:
            raise TooLarge(f"texts may have {MAX_EMBEDDED_CHARACTERS} characters altogether: ask several times")

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
            limit = limit if request.max_prompt_tokens is None else MAX_COUNTED_TOKENS
            tokens = await asyncio.to_thread(tokenizer.raw_tokens, request.prompt or "", limit)
            return keep_end(tokens, request.max_prompt_tokens, self.engine.model.begin)
        if len(request.messages) > MANY_MESSAGES or measure_texts(request) >= LONG_TEXT_CHARACTERS:
            return await asyncio.to_thread(self._chat_tokens, request, limit)
        return self._chat_tokens(request, limit)

    def _chat_tokens(self, request: TextCompletionRequest, limit: int) -> tuple[int, ...]:
        *earlier, prompt = alternating_texts(request.turns)
        return self._tokenizer.tokens(request.system_text, prompt, limit, earlier)

    def _text(self, ids: tuple[int, ...]) -> str:
        return b"".join([self.engine.model.pieces[token] for token in ids]).decode("utf-8", "replace")

    @override
    async def aclose(self) -> None:
        await super().aclose()
        self._end_watch()
        await asyncio.to_thread(self.engine.close)


async def _begun(generation: Generation, echo: str | None) -> tuple[Generation, str | None]:
    return generation, echo


def _submit(engine: EnginePool, generation: Generation) -> None:
    try:
        engine.submit(generation)
    except TgError:
        generation.leave()
        raise


def _all_data(model: Model, ids: tuple[int, ...]) -> tuple[Token, ...]:
    return tuple([token_data(model, token) for token in ids])


def _truncated(model: Model, ids: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The first tokens, plus the end token if the model's author wants one."""
    if len(ids) <= most:
        return ids
    return (*ids[: most - 1], ids[-1]) if model.is_control(ids[-1]) else ids[:most]


def _cut_texts(model: Model, texts: tuple[str, ...]) -> list[tuple[int, ...]]:
    return [tuple(model.tokenize(text, special=False, ends=True)) for text in texts]


def _close_late(opening: asyncio.Future[tuple[EnginePool, PromptTokenizer]]) -> None:
    """Close what a cancelled opening has loaded."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].close()
