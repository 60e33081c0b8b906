"""TextCompletionRequest -> the demo model in NumPy, in this process. It needs no compiler and no other model file."""

import asyncio
import os
from typing import Self

# NumPy reads this while it is loaded. The matrices are so small that a second thread only waits. While another process
# uses that thread's core, a step would take ten times as long.
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

from tg_base.runtime import start_daemon_thread
from tg_llama.chat import PromptTokenizer
from tg_llama.core import EngineSizes
from tg_llama.demo import DemoModel
from tg_llama.engine import EnginePool
from tg_llama.in_process import InProcess, SamplingOptions
from tg_llama.request import offered_tools
from tg_llama.tools import free_grammar, let_copy
from tg_schema import COMMON_FEATURES, TextCompletionRequest
from tg_schema.features import Feature

SLOTS = 16
"""Concurrent answers."""
STEP_TOKENS = 256
"""Prompt tokens in one step, whose end all answers wait for."""

_FEATURES: frozenset[Feature] = frozenset(
    {"raw", "choice", "regex", "parallel_tool_calls", "allowed_tools", "count_tokens"}
)


class DemoOptions(SamplingOptions, frozen=True, kw_only=True):
    """The options of the demo model. `path` is refused, because this provider has only the packaged model."""


class Demo(InProcess[DemoOptions]):
    """The `demo` provider. Create it with `open`, which loads the model."""

    features = (COMMON_FEATURES - {"images"}) | _FEATURES
    capacity = SLOTS
    max_counted_tokens = 20_000

    @classmethod
    @override
    async def open(cls, model: str, options: DemoOptions) -> Self:
        await cls.rehearse(model, options)
        loaded = await start_daemon_thread(DemoModel, f"load {model}")
        sizes = EngineSizes(slots=SLOTS, context=loaded.context_length, batch=STEP_TOKENS)
        return cls(model, options, EnginePool(loaded, sizes), PromptTokenizer(loaded))

    @classmethod
    @override
    async def rehearse(cls, model: str, options: DemoOptions) -> None:
        if options.path:
            raise BadRequest("this provider has the packaged model alone; for GGUF files use llama-cpp").at("path")

    @override
    async def _grammar(self, request: TextCompletionRequest) -> str | None:
        """The model spells badly, so all its calls may use only the offered tools and words of the conversation."""
        told = msgspec.structs.replace(request, tools=let_copy(request.tools, request.turns))
        forced = await super()._grammar(told)
        template, tools = self._tokenizer.tools, offered_tools(told)
        if forced is not None or template is None or not tools:
            return forced
        try:
            free = await asyncio.to_thread(free_grammar, template.form, tools)
            await asyncio.to_thread(self.engine.model.grammars.compile, free)
        except BadRequest:  # no grammar can enforce the schema of one of the tools
            return None
        return free
