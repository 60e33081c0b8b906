"""TextCompletionRequest -> llama.cpp in this process: concurrent streams on one model."""

import asyncio
import os
from collections.abc import AsyncGenerator
from functools import lru_cache
from itertools import groupby
from typing import Annotated, Self

import msgspec
from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_flow.llama.engine_pool import EnginePool
from tg_flow.llama.engine_sizes import EngineSizes
from tg_flow.llama.generation import Generation, Job
from tg_flow.llama.json_grammar import ANY_STRUCTURE, json_grammar
from tg_flow.llama.mailbox import Mailbox
from tg_flow.llama.model import Model
from tg_flow.llama.model_file import model_file
from tg_flow.llama.prompt_tokenizer import PromptTokenizer
from tg_flow.llama.sampler_settings import SamplerSettings
from tg_schema import FEATURES, Message, Sampling, TextCompletionRequest, TgError
from tg_schema.errors import BadRequest, Internal

SMALL_MODEL_PARAMETERS = 64_000_000
"""Bytes of weights up to which one thread computes a step faster than several, which must synchronize."""

MAX_DEFAULT_CONTEXT_TOKENS = 4096
"""Default tokens per slot, or fewer if the model was trained with fewer; memory grows with it."""

LONG_TEXT_CHARACTERS = 8_000
"""Characters from which a prompt is tokenized in another thread; a shorter one takes less than a millisecond."""

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
"""Maximum length of a stop string in characters."""

MAX_LOGPROBS = 20


class LlamaCppOptions(ProviderOptions, frozen=True, kw_only=True):
    """The options of a llama-cpp model.

    Attributes:
        path: "" for the packaged demo model, `PATH.gguf`, or `hf:OWNER/NAME/FILE`.
        slots: maximum number of concurrent streams.
        context: tokens of prompt and answer per slot; None = the model's training length, at most 4096.
        engines: contexts that share the streams, each with its own thread and memory; None = 2 for a model below 64 MB,
            else 1.
        threads: threads per engine that compute one step; None = 1 for a model below 64 MB, else one per CPU.
        batch: maximum tokens evaluated in one step.
        waiting: maximum number of requests waiting for a slot; more are refused as rate-limited.
        temperature: the default, like `top_k` and `top_p`, for requests without one.
    """

    path: str = ""
    slots: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16
    context: Annotated[int, msgspec.Meta(ge=16, le=2**20)] | None = None
    engines: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] | None = None
    batch: Annotated[int, msgspec.Meta(ge=1, le=8192)] = 512
    waiting: Annotated[int, msgspec.Meta(ge=0)] = 256
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.8
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 40
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95

    def sizes(self, trained: int, size: int) -> EngineSizes:
        """The sizes for a model of `size` bytes with a training context of `trained` tokens."""
        small = size <= SMALL_MODEL_PARAMETERS
        cores = os.cpu_count() or 1
        return EngineSizes(
            slots=self.slots,
            engines=min(self.engines or (2 if small else 1), self.slots, cores),
            context=self.context or min(trained, MAX_DEFAULT_CONTEXT_TOKENS),
            threads=self.threads or (1 if small else cores),
            batch=self.batch,
            waiting=self.waiting,
        )


class LlamaCpp(LlmService[LlamaCppOptions]):
    """The `llama-cpp` provider. Create it with `open`, which loads the model.

    Attributes:
        engine: evaluates the model; its `stats()` have totals and the present state.
    """

    features = FEATURES - {"images", "tools"}

    def __init__(self, model: str, options: LlamaCppOptions, engine: EnginePool, tokenizer: PromptTokenizer) -> None:
        super().__init__(model, options)
        self.capacity = options.slots
        self.engine = engine
        # Without a chat template for several turns a model cannot tell earlier answers from the prompt.
        if not tokenizer.knows_history:
            self.features -= {"history"}
        self._tokenizer = tokenizer

    @classmethod
    @override
    async def open(cls, model: str, options: LlamaCppOptions) -> Self:
        loading = asyncio.get_running_loop().run_in_executor(None, _load, options)
        try:
            engine, tokenizer = await asyncio.shield(loading)
        except asyncio.CancelledError:
            loading.add_done_callback(_close_late)  # nothing stops the thread, but its result must not stay in memory
            raise
        return cls(model, options, engine, tokenizer)

    @classmethod
    @override
    async def rehearse(cls, model: str, options: LlamaCppOptions) -> None:
        await asyncio.to_thread(_rehearse, options)

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        generation = Generation(await self._job(request), self.engine.model.pieces, Mailbox.here())
        self.engine.submit(generation)
        try:
            while True:
                chunk = await generation.read()
                yield chunk
                if chunk.finish_reason is not None:
                    return
        finally:
            generation.cancel()

    async def _job(self, request: TextCompletionRequest) -> Job:
        sampling = request.sampling or Sampling()
        _check(sampling)
        settings = SamplerSettings.of(
            sampling, temperature=self.options.temperature, top_k=self.options.top_k, top_p=self.options.top_p
        )
        return Job(
            prompt=await self._prompt(request),
            settings=settings,
            max_tokens=self.engine.context_length if sampling.max_tokens is None else sampling.max_tokens,
            stop=sampling.stop,
            logprobs=sampling.logprobs,
            grammar=await _grammar(request),
        )

    async def _prompt(self, request: TextCompletionRequest) -> tuple[int, ...]:
        *earlier, prompt = _texts(request.turns)
        system, limit = request.system_text, self.engine.context_length
        if len(system) + len(prompt) + sum(map(len, earlier)) < LONG_TEXT_CHARACTERS:
            return self._tokenizer.tokens(system, prompt, limit, earlier)
        return await asyncio.to_thread(self._tokenizer.tokens, system, prompt, limit, earlier)

    @override
    async def aclose(self) -> None:
        await asyncio.to_thread(self.engine.close)


def _load(options: LlamaCppOptions) -> tuple[EnginePool, PromptTokenizer]:
    """The engine for `options`; blocks while the model is downloaded and loaded."""
    model = _model(options, weights=True)
    if model is None:
        raise Internal("a model's file was not fetched")
    try:
        tokenizer = PromptTokenizer(model)
        return EnginePool(model, options.sizes(model.context_length, model.size)), tokenizer
    except TgError:
        model.close()
        raise


def _close_late(loading: asyncio.Future[tuple[EnginePool, PromptTokenizer]]) -> None:
    """Close what a cancelled opening has loaded."""
    if not loading.cancelled() and loading.exception() is None:
        engine, _ = loading.result()
        engine.close()


def _rehearse(options: LlamaCppOptions) -> None:
    model = _model(options, weights=False)
    if model is not None:
        try:
            PromptTokenizer(model)
        finally:
            model.close()


def _model(options: LlamaCppOptions, *, weights: bool) -> Model | None:
    """The model of `options`. Without weights None, if the file has not been downloaded yet but could be."""
    try:
        path = model_file(options.path, fetch=weights)
        return None if path is None else Model(path, weights=weights)
    except TgError as error:
        raise error.at("path") from None


def _texts(turns: tuple[Message, ...]) -> list[str]:
    """The texts of a conversation; consecutive turns of one role are joined by a blank line."""
    spoken = [(role, "\n\n".join(turn.text for turn in group)) for role, group in groupby(turns, _role)]
    if [role for role, _ in spoken] != (["user", "assistant"] * len(spoken))[: len(spoken)] or len(spoken) % 2 == 0:
        raise BadRequest("messages: this model knows turns of user and assistant, the first and the last the user's")
    return [text for _, text in spoken]


def _role(turn: Message) -> str:
    return turn.role


def _check(sampling: Sampling) -> None:
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise BadRequest("sampling.max_tokens must be at least 1")
    if sampling.logprobs is not None and not 0 <= sampling.logprobs <= MAX_LOGPROBS:
        raise BadRequest(f"sampling.logprobs must be from 0 to {MAX_LOGPROBS}")
    if len(sampling.stop) > MAX_STOPS or not all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in sampling.stop):
        raise BadRequest(f"sampling.stop may have {MAX_STOPS} texts of 1 to {MAX_STOP_CHARACTERS} characters")


async def _grammar(request: TextCompletionRequest) -> str | None:
    if request.schema is None:
        return _ANY_STRUCTURE if request.response_format == "json" else None
    try:
        return await asyncio.to_thread(_find_grammar, msgspec.json.encode(request.schema))
    except (RecursionError, UnicodeEncodeError) as error:
        raise BadRequest("schema: it is nested too deep, or has a text that is not Unicode") from error


@lru_cache(maxsize=64)
def _find_grammar(schema: bytes) -> str:
    return json_grammar(msgspec.json.decode(schema))


_ANY_STRUCTURE = json_grammar(ANY_STRUCTURE)
