"""Provider -> LlmService: one piece of an answer."""

from collections.abc import Sequence

from tg_schema.completion import Completion, join_completions


class LlmChunk(Completion, frozen=True):
    """A piece of a provider's answer: its text and the fields of `Completion`.

    Text passes through unchanged: no strip, no re-encoding. `finish_reason` is set on the chunk with the provider's
    terminal marker; a stream without it is incomplete, even if the connection was closed cleanly.

    Attributes:
        text: the new text; may be empty.
    """

    text: str = ""

    @property
    def usage(self) -> "LlmChunk":
        """A chunk with the token counts only."""
        return LlmChunk(
            in_token=self.in_token,
            out_token=self.out_token,
            cached_token=self.cached_token,
            reasoning_token=self.reasoning_token,
        )

    @property
    def has_content(self) -> bool:
        """Whether a client would see anything of it."""
        return bool(self.text or self.reasoning or self.tokens or self.tool_calls)


def join_chunks(chunks: Sequence[LlmChunk]) -> LlmChunk:
    """Join chunks into one.

    Only the counts of chunks after the first `finish_reason` are used: an answer has no text after its end.
    """
    end = next((number for number, chunk in enumerate(chunks, 1) if chunk.finish_reason), len(chunks))
    said = chunks[:end]
    text = "".join([chunk.text for chunk in said])
    return join_completions(LlmChunk(text), (*said, *(chunk.usage for chunk in chunks[end:])))
