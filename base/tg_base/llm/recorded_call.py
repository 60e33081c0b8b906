"""A provider's guarded stream -> the same, recorded as a span: one call of a model, what it used and how it ended."""

from collections.abc import AsyncGenerator
from contextlib import suppress
from time import monotonic
from typing import Any

from tg_base.llm.core import LlmChunk, PassOn
from tg_base.telemetry import Attribute, Spanning, span_names
from tg_schema import TextCompletionRequest


class RecordedCall:
    """What is known of one call. It sees each chunk, whether a task waits for it or not.

    Args:
        about: the attributes of its span, which it completes.

    Attributes:
        on_chunk: gets the chunks that come while the provider is waited for; None = who waits does.
    """

    __slots__ = ("_about", "_began", "_first", "on_chunk")

    def __init__(self, about: dict[str, Attribute]) -> None:
        self.on_chunk: PassOn | None = None
        self._about = about
        self._began = monotonic()
        self._first = True

    def see(self, chunk: LlmChunk) -> None:
        """One more chunk has come."""
        if self._first and (chunk.text or chunk.has_content):
            self._first = False
            self._about[span_names.TIME_TO_FIRST_CHUNK] = monotonic() - self._began
        if chunk.finish_reason is not None:
            self._about[span_names.FINISH_REASONS] = (chunk.finish_reason,)
        if chunk.model is not None:
            self._about[span_names.RESPONSE_MODEL] = chunk.model
        # Nearly all chunks count nothing.
        if chunk.in_token is not None or chunk.out_token is not None:
            self._count(span_names.INPUT_TOKENS, chunk.in_token)
            self._count(span_names.OUTPUT_TOKENS, chunk.out_token)
            self._count(span_names.CACHED_TOKENS, chunk.cached_token)
            self._count(span_names.REASONING_TOKENS, chunk.reasoning_token)

    def _count(self, name: str, count: int | None) -> None:
        before = self._about.get(name)
        if count is not None:
            self._about[name] = count + (before if isinstance(before, int) else 0)

    def pass_on(self, chunk: LlmChunk) -> bool:
        """A `PassOn`, while the provider is waited for."""
        self.see(chunk)
        return self.on_chunk is not None and self.on_chunk(chunk)


async def record_call(
    source: AsyncGenerator[LlmChunk, Any], model: str, about: dict[str, Attribute]
) -> AsyncGenerator[LlmChunk, PassOn | None]:
    """The chunks of a call. While it is read, the current task's span is the call's, whose ids the provider gets.

    Args:
        source: the guarded stream, which is closed whatever happens.
        model: its name at the provider.
        about: the attributes that are known before.

    Raises:
        TgError: as `source`.
    """
    call = RecordedCall(about)
    with Spanning(f"{span_names.CHAT} {model}", "client", about):
        try:
            with suppress(StopAsyncIteration):
                while True:
                    chunk = await source.asend(None if call.on_chunk is None else call.pass_on)
                    call.see(chunk)
                    call.on_chunk = yield chunk
                    # Do not keep this chunk while waiting for the next.
                    del chunk
        finally:
            await source.aclose()


def describe_call(request: TextCompletionRequest) -> dict[str, Attribute]:
    """What spans have of a request for an answer: never its content."""
    sampling = request.sampling
    return {
        span_names.OPERATION: span_names.CHAT,
        span_names.STREAM: request.streaming,
        span_names.MAX_TOKENS: None if sampling is None else sampling.max_tokens,
        span_names.TEMPERATURE: None if sampling is None else sampling.temperature,
    }
