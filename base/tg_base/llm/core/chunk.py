"""Provider -> LlmService: one piece of an answer."""

from collections.abc import Sequence

from tg_schema.completion import Completion, join_completions


class LlmChunk(Completion, frozen=True):
    """What a provider yields, beside the text the fields of `Completion`, by their names.

    Text passes through unchanged: no strip, no re-encoding. `finish_reason` is set where the provider gave its terminal
    marker; a stream that ends without it is incomplete, whatever its socket said.

    Attributes:
        text: the new text, possibly empty.
    """

    text: str = ""

    @property
    def usage(self) -> "LlmChunk":
        """The counts alone."""
        return LlmChunk(
            in_token=self.in_token,
            out_token=self.out_token,
            cached_token=self.cached_token,
            reasoning_token=self.reasoning_token,
        )

    @property
    def has_content(self) -> bool:
        """Whether a reader would see anything of it."""
        return bool(self.text or self.reasoning or self.tokens or self.tool_calls)


def join_chunks(chunks: Sequence[LlmChunk]) -> LlmChunk:
    """One chunk with what all of them say.

    Of chunks after the first `finish_reason`, only the counts are taken: an answer has no text after its end.
    """
    end = next((number for number, chunk in enumerate(chunks, 1) if chunk.finish_reason), len(chunks))
    said = chunks[:end]
    text = "".join([chunk.text for chunk in said])
    return join_completions(LlmChunk(text), (*said, *(chunk.usage for chunk in chunks[end:])))
