"""Provider -> LlmService: one piece of an answer."""

from collections.abc import Sequence

import msgspec

from tg_schema import Token, ToolCallDelta
from tg_schema.conversation import whole_calls
from tg_schema.deltas import add_counts, join_text


class LlmChunk(msgspec.Struct, frozen=True):
    """What a provider yields. Text passes through unchanged: no strip, no re-encoding.

    Attributes:
        text: the new text, possibly empty.
        in_token: prompt tokens not counted before; None = unknown, 0 = counted zero.
        out_token: answer tokens not counted before; None = unknown.
        model: the name that the provider says it ran.
        finish_reason: set once, where the provider gave its terminal marker: "stop", "length", "tool_calls" or
            "content_filter".
            A stream that ends without it is incomplete, whatever its socket said.
        reasoning: new thinking text, where the provider tells it apart.
        tokens: ids and log-probabilities of the tokens in `text`, where asked for and known.
        tool_calls: new pieces of the calls that the model asks for.
        cached_token: how many of `in_token` came from the provider's cache; None = unknown.
        reasoning_token: how many of `out_token` were thinking; None = unknown.
    """

    text: str = ""
    in_token: int | None = None
    out_token: int | None = None
    model: str | None = None
    finish_reason: str | None = None
    reasoning: str | None = None
    tokens: tuple[Token, ...] = ()
    tool_calls: tuple[ToolCallDelta, ...] = ()
    cached_token: int | None = None
    reasoning_token: int | None = None

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
    """One chunk with the text of all, counts added, and the first `finish_reason` among them.

    Of chunks after that one, only the counts are taken: an answer has no text after its end.
    """
    usage = chunks
    end = next((number for number, chunk in enumerate(chunks, 1) if chunk.finish_reason), len(chunks))
    chunks = chunks[:end]
    return LlmChunk(
        text="".join(chunk.text for chunk in chunks),
        in_token=add_counts(chunk.in_token for chunk in usage),
        out_token=add_counts(chunk.out_token for chunk in usage),
        model=next((chunk.model for chunk in reversed(chunks) if chunk.model), None),
        finish_reason=chunks[-1].finish_reason if chunks else None,
        reasoning=join_text(chunk.reasoning for chunk in chunks),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        tool_calls=whole_calls(call for chunk in chunks for call in chunk.tool_calls),
        cached_token=add_counts(chunk.cached_token for chunk in usage),
        reasoning_token=add_counts(chunk.reasoning_token for chunk in usage),
    )
