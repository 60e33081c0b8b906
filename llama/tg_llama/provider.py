"""TextCompletionRequest -> llama.cpp in this process: concurrent streams on one model."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, closing
from functools import partial
from typing import Self

import msgspec
from typing_extensions import override

from tg_base.llm import Detokenized, Embeddings, ProviderOptions, Scores
from tg_base.runtime import start_daemon_thread
from tg_base.telemetry import MODEL_LOADS
from tg_llama.chat import PromptTokenizer
from tg_llama.core import CONTROL_TOKEN, model_file, token_data
from tg_llama.engine import CUT_ADVICE, EnginePool, read_answer
from tg_llama.in_process import InProcess, begun
from tg_llama.lora import find_adapter_files, find_loaded_file
from tg_llama.native import Model, ModelLoad
from tg_llama.options import LlamaCppOptions
from tg_llama.request import check_ids
from tg_schema import COMMON_FEATURES, TextCompletionRequest, TgError, Token
from tg_schema.errors import BadRequest, ContextLengthExceeded, Internal, TooLarge
from tg_schema.features import Feature

MAX_EMBEDDED_CHARACTERS = 2_000_000
"""Most characters of all texts in a request to embed."""


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
"""Additional features of a model with LoRA adapters."""


def open_engines(options: LlamaCppOptions, load: ModelLoad) -> tuple[EnginePool[Model], PromptTokenizer]:
    """The engines for `options`; blocks while the model is downloaded and loaded. Raises as `rehearse_engines`."""
    model = _model(options, load, weights=True)
    if model is None:
        raise Internal("a model's file was not fetched")
    try:
        tokenizer = PromptTokenizer(model)
        # If adapters may be loaded later, report adapter slots to pickers even before there is an adapter.
        takes = bool(options.adapters or options.adapter_folder)
        adapters = find_adapter_files(options.adapters) if takes else None
        return EnginePool(model, options.sizes(model.context_length, model.size), adapters), tokenizer
    except TgError:
        model.close()
        raise


def rehearse_engines(options: LlamaCppOptions) -> None:
    """Check, without weights, what `open_engines` needs. Raises: TgError; its `option` is the option that is wrong."""
    find_adapter_files(options.adapters, fetch=False)
    model = _model(options, ModelLoad(), weights=False)
    if model is not None:
        with closing(model):
            PromptTokenizer(model)


def _model(options: LlamaCppOptions, load: ModelLoad, *, weights: bool) -> Model | None:
    """The model of `options`. Without weights: None if its file is not downloaded yet, but could be."""
    try:
        path = model_file(options.path, fetch=weights)
        return None if path is None else Model(path, weights=weights, load=load)
    except TgError as error:
        raise error.at("path") from None


class LlamaCpp(InProcess[LlamaCppOptions]):
    """The `llama-cpp` provider. Create it with `open`, which loads the model."""

    features = (COMMON_FEATURES - {"images"}) | _FEATURES
    optional_features = InProcess.optional_features | {"dimensions"}
    engine: EnginePool[Model]

    def __init__(
        self, model: str, options: LlamaCppOptions, engine: EnginePool[Model], tokenizer: PromptTokenizer
    ) -> None:
        super().__init__(model, options, engine, tokenizer)
        # If a model's template has only one turn, the model cannot distinguish earlier answers from the prompt.
        if not tokenizer.knows_history:
            self.features -= {"history"}
        if tokenizer.tools is None:
            self.features -= {"tools"}
        if not engine.model.writes:
            self.features &= _ENCODER_FEATURES
        self._end_watch = MODEL_LOADS.watch(lambda: engine.look(model))

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
        # Use a daemon thread: a download may take hours, and a process that is told to exit must not wait for it.
        opening = start_daemon_thread(lambda: open_engines(options, load), f"load {model}")
        try:
            engine, tokenizer = await asyncio.shield(opening)
        except asyncio.CancelledError:
            load.abort()
            opening.add_done_callback(_close_late)  # the load may have finished anyway: free its result
            raise
        return cls(model, options, engine, tokenizer)

    @classmethod
    @override
    async def rehearse(cls, model: str, options: LlamaCppOptions) -> None:
        await start_daemon_thread(lambda: rehearse_engines(options), f"rehearse {model}")

    @override
    async def tokenize(self, request: TextCompletionRequest) -> tuple[int, ...]:
        if not request.texts:
            return await self._prompt(request, self.max_counted_tokens)
        if sum(map(len, request.texts)) > self.max_counted_tokens:
            raise TooLarge(f"texts may have {self.max_counted_tokens} characters altogether")
        cut = self.engine.model.tokenize
        return tuple([token for text in request.texts for token in await asyncio.to_thread(cut, text, special=False)])

    @override
    async def detokenize(self, request: TextCompletionRequest) -> Detokenized:
        model, ids = self.engine.model, request.prompt_ids
        check_ids("the tokens", ids, model.vocabulary)
        tokens: tuple[Token, ...] = ()
        if request.token_texts:
            tokens = await asyncio.to_thread(lambda: tuple([token_data(model, token) for token in ids]))
        return Detokenized(await asyncio.to_thread(model.detokenize, ids), tokens)

    @override
    async def score(self, request: TextCompletionRequest) -> Scores:
        check_ids("scored", request.scored, self.engine.model.vocabulary)
        job = msgspec.structs.replace(await self._job(request), scored=request.scored, stop=(), grammar=None)
        if not job.evaluated:
            return Scores((), (token_data(self.engine.model, job.prompt[0]),), 1)
        generation = await self._submit(job, request.adapter)
        async with aclosing(read_answer(partial(begun, generation, None))) as stream:
            chunks = [chunk async for chunk in stream]
        return Scores(
            tuple([token for chunk in chunks for token in chunk.tokens]),
            tuple([token for chunk in chunks for token in chunk.prompt_tokens]),
            len(job.prompt) + len(request.scored),
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
            texts = await asyncio.to_thread(
                lambda: [tuple(model.tokenize(text, special=False, ends=True)) for text in request.texts]
            )
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
        # A cheap check before a huge text is tokenized.
        longest = self.engine.context_length * self.engine.model.longest_piece
        if not request.truncate and max(map(len, request.texts)) > longest:
            raise ContextLengthExceeded.of_counts(None, self.engine.context_length, CUT_ADVICE)
        if sum(map(len, request.texts)) > MAX_EMBEDDED_CHARACTERS:
            raise TooLarge(f"texts may have {MAX_EMBEDDED_CHARACTERS} characters altogether: ask several times")

    @override
    async def aclose(self) -> None:
        self._end_watch()
        await super().aclose()


def _truncated(model: Model, ids: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The first tokens, then the end token if the tokens had one."""
    if len(ids) <= most:
        return ids
    return (*ids[: most - 1], ids[-1]) if model.attributes(ids[-1]) & CONTROL_TOKEN else ids[:most]


def _close_late(opening: asyncio.Future[tuple[EnginePool[Model], PromptTokenizer]]) -> None:
    """Close the result of an opening that was cancelled too late."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result()[0].close()
