"""TextCompletionRequest -> the demo model in NumPy, in this process: no compiler, no other model."""

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Self

# NumPy reads it as it is loaded. The matrices are so small that a second thread only waits: while another process has
# its core, a step takes ten times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tg_schema.errors import BadRequest, Unavailable

try:
    import numpy  # noqa: F401, ICN001 - a wheel that is not for this processor raises here
except (ImportError, RuntimeError) as error:
    raise Unavailable(
        "the demo model needs NumPy, which cannot be loaded here; run: pip install --only-binary numpy "
        "--force-reinstall numpy; where that finds no wheel, serve a model elsewhere: see --provider of tg-serve --help"
    ) from error

import msgspec
from typing_extensions import override

from tg_base.llm import LlmChunk, LlmService, ProviderOptions
from tg_base.runtime import start_daemon_thread
from tg_llama.chat import PromptTokenizer
from tg_llama.demo import SLOTS, DemoEngine, DemoModel, Preferences, Task, Writing
from tg_llama.request import (
    alternating_texts,
    check_sampling,
    find_call_grammar,
    find_grammar,
    needs_tools,
    offered_tools,
    read_calls,
)
from tg_schema import COMMON_FEATURES, ModelInfo, Sampling, TextCompletionRequest
from tg_schema.features import Feature

MAX_COUNTED_TOKENS = 20_000
"""Tokens up to which a prompt beyond the context is counted."""

_FEATURES: frozenset[Feature] = frozenset(
    {"raw", "choice", "regex", "parallel_tool_calls", "allowed_tools", "count_tokens"}
)


class DemoOptions(ProviderOptions, frozen=True, kw_only=True):
    """The options of the demo model.

    Attributes:
        path: refused: it is the packaged model alone.
        temperature: the default, like `top_k` and `top_p`, for requests without one.
    """

    path: str = ""
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.8
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 40
    top_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.95


class Demo(LlmService[DemoOptions]):
    """The `demo` provider. Create it with `open`, which loads the model.

    Attributes:
        engine: evaluates the model.
    """

    features = (COMMON_FEATURES - {"images"}) | _FEATURES
    capacity = SLOTS

    def __init__(self, name: str, options: DemoOptions, model: DemoModel) -> None:
        super().__init__(name, options)
        self.engine = DemoEngine(model)
        self._model = model
        self._tokenizer = PromptTokenizer(model.pairs)

    @classmethod
    @override
    async def open(cls, model: str, options: DemoOptions) -> Self:
        await cls.rehearse(model, options)
        return cls(model, options, await start_daemon_thread(lambda: DemoModel(SLOTS), f"load {model}"))

    @classmethod
    @override
    async def rehearse(cls, model: str, options: DemoOptions) -> None:
        if options.path:
            raise BadRequest("this provider has the packaged model alone; for GGUF files use llama-cpp").at("path")

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        writing = Writing(await self._task(request))
        self.engine.submit(writing)
        chunks, tools = writing.read(), self._tokenizer.tools
        if tools is not None and offered_tools(request):
            chunks = read_calls(chunks, tools, request)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    @override
    async def count_tokens(self, request: TextCompletionRequest) -> int:
        return len(await asyncio.to_thread(self._prompt, request, MAX_COUNTED_TOKENS))

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        pairs = self._model.pairs
        return (
            ModelInfo(
                self.model,
                context_length=self._model.context,
                vocabulary=len(pairs.pieces),
                end_ids=tuple(sorted(pairs.end_tokens)),
            ),
        )

    async def _task(self, request: TextCompletionRequest) -> Task:
        sampling, options = request.sampling or Sampling(), self.options
        check_sampling(sampling, len(self._model.pairs.pieces))
        forced = None
        if self._tokenizer.tools is not None and request.tools:
            forced = await asyncio.to_thread(find_call_grammar, request, self._tokenizer.tools)
        grammar = await find_grammar(request, self._model.grammars, forced)
        prompt = await asyncio.to_thread(self._prompt, request, self._model.context)
        room = self._model.context - len(prompt)
        return Task(
            prompt=prompt,
            preferences=Preferences(
                temperature=options.temperature if sampling.temperature is None else sampling.temperature,
                top_k=max(0, options.top_k if sampling.top_k is None else sampling.top_k),
                top_p=options.top_p if sampling.top_p is None else sampling.top_p,
                seed=secrets.randbelow(2**32) if sampling.seed is None else sampling.seed % 2**32,
                presence_penalty=sampling.presence_penalty or 0.0,
                frequency_penalty=sampling.frequency_penalty or 0.0,
                logprobs=sampling.logprobs,
            ),
            max_tokens=room if sampling.max_tokens is None else min(room, sampling.max_tokens),
            stop=tuple(sampling.stop),
            grammar=grammar,
        )

    def _prompt(self, request: TextCompletionRequest, limit: int) -> tuple[int, ...]:
        tokenizer = self._tokenizer
        if needs_tools(request):
            return tokenizer.tool_tokens(request.system_text, request.turns, offered_tools(request), limit)
        if request.raw:
            return tokenizer.raw_tokens(request.prompt or "", limit)
        *earlier, prompt = alternating_texts(request.turns)
        return tokenizer.tokens(request.system_text, prompt, limit, earlier)

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await asyncio.to_thread(self.engine.close)
