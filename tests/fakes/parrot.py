"""TextCompletionRequest -> a parrot, which answers in lines of JSON over HTTP -> LlmChunks."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from typing_extensions import override

from tg_base.llm import (
    JsonLines,
    LlmChunk,
    LlmService,
    ProviderOptions,
    event_chunks,
    event_error,
    key_from,
    open_body,
    open_pool,
)
from tg_schema import FinishReason, Sampling, TextCompletionRequest


class ParrotOptions(ProviderOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the configuration may say of a parrot."""

    base_url: str = "https://parrot.example"
    key_variable: str = "PARROT_KEY"


class Parrot(LlmService[ParrotOptions]):
    """Repeats its prompt."""

    features = frozenset({"stop"})

    def __init__(self, model: str, options: ParrotOptions) -> None:
        super().__init__(model, options)
        self._headers = (("X-Parrot-Key", key_from(options.key_variable) or ""), ("Content-Type", "application/json"))
        self._pool = open_pool()

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        sampling = request.sampling or Sampling()
        body: dict[str, object] = {"model": self.model, "system": request.system_text}
        body |= {"prompt": request.turns[-1].text, "stop": sampling.stop}
        body |= {"heat": sampling.temperature, "longest": sampling.max_tokens}
        asked = self._pool.ask("POST", f"{self.options.base_url}/say", self._headers, msgspec.json.encode(body))
        async with aclosing(event_chunks(open_body(asked), _Answer(), frames=JsonLines())) as chunks:
            async for chunk in chunks:
                yield chunk

    @override
    async def aclose(self) -> None:
        await super().aclose()
        await self._pool.aclose()


class _Line(msgspec.Struct):
    say: str = ""
    heard: int | None = None
    said: int | None = None
    end: FinishReason | None = None
    error: int | None = None


class _Answer:
    done = False

    def chunk(self, data: bytes) -> LlmChunk:
        line = msgspec.json.decode(data, type=_Line)
        if line.error is not None:
            raise event_error(line.error)
        self.done = line.end is not None
        return LlmChunk(line.say, in_token=line.heard, out_token=line.said, finish_reason=line.end)
