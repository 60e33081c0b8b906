"""Provider -> LlmService: one piece of an answer."""

from collections.abc import Callable, Sequence
from operator import attrgetter

import msgspec

from tg_schema import Usage
from tg_schema.completion import Completion, group_completions, join_completions


class LlmChunk(Completion, frozen=True):
    """A piece of a provider's answer: its text and the fields of `Completion`.

    Text passes through unchanged: no strip, no re-encoding. `finish_reason` is set on the chunk with the provider's
    terminal marker; a stream without it is incomplete, even if the connection was closed cleanly.

    Attributes:
        text: the new text; may be empty.
    """

    text: str = ""

    @property
    def has_content(self) -> bool:
        """Whether a client would see anything of this chunk."""
        return bool(
            self.text or self.reasoning or self.tokens or self.tool_calls or self.signature or self.prompt_tokens
        )


PassOn = Callable[[LlmChunk], bool]
"""Takes a chunk without waiting; returns whether it can take another one. A generator of chunks to which it was sent
may call it with the chunks that arrive while the generator's next one is awaited."""


def join_chunks(chunks: Sequence[LlmChunk]) -> tuple[LlmChunk, ...]:
    """Join chunks into few: one for each answer and piece of thinking, as `group_completions` says.

    After an answer's `finish_reason`, only the counts of its chunks are used: it has no text after its end.
    """
    # Under load nearly every read has a few texts of one answer, and the last read has its end and counts. Grouping
    # such chunks would cost more than all other work on them.
    if (joined := _join_texts(chunks)) is not None:
        return (joined,)
    if any(chunk.finish_reason is not None for chunk in chunks):
        chunks = _without_rest(chunks)
    return tuple(_join(group) for group in group_completions(chunks, attrgetter("text")))


def _join_texts(chunks: Sequence[LlmChunk]) -> LlmChunk | None:
    """The joined chunks if they are of one answer and have nothing but text, its end and counts; None if they are not.

    After the answer's end, later chunks add only their counts.
    """
    if not chunks:
        return None
    index, model, finish_reason = chunks[0].index, None, None
    texts: list[str] = []
    counted: list[LlmChunk] = []
    for chunk in chunks:
        # The chunk with its text, the end of the answer, and then its counts alone.
        ended = LlmChunk(chunk.text, model=chunk.model, index=index, finish_reason=chunk.finish_reason)
        if chunk != ended:
            if chunk != ended.with_usage(chunk.usage):
                return None
            counted.append(chunk)
        if finish_reason is None:
            texts.append(chunk.text)
            model = model if chunk.model is None else chunk.model
            finish_reason = chunk.finish_reason
    joined = LlmChunk("".join(texts), model=model, index=index, finish_reason=finish_reason)
    if len(counted) == 1:
        return msgspec.structs.replace(counted[0], text=joined.text, model=model, finish_reason=finish_reason)
    return joined.with_usage(Usage.total(counted)) if counted else joined


def _without_rest(chunks: Sequence[LlmChunk]) -> list[LlmChunk]:
    """The chunks, with the counts only of those after the end of their answer."""
    ended: set[int] = set()
    kept: list[LlmChunk] = []
    for chunk in chunks:
        kept.append(LlmChunk(index=chunk.index).with_usage(chunk.usage) if chunk.index in ended else chunk)
        if chunk.finish_reason is not None:
            ended.add(chunk.index)
    return kept


def _join(chunks: Sequence[LlmChunk]) -> LlmChunk:
    return chunks[0] if len(chunks) == 1 else join_completions(LlmChunk("".join([c.text for c in chunks])), chunks)
