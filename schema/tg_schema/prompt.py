"""Prompt: a template's id and variables in, text or an object out."""

from collections.abc import Sequence
from typing import ClassVar, Self

import msgspec

from tg_schema.completion import LATER_WORDS, FinishReason
from tg_schema.deltas import Count, add_counts, join_text
from tg_schema.errors import Error
from tg_schema.pieces import cut_text, in_parts
from tg_schema.stream_record import StreamRecord


class PromptRequest(msgspec.Struct, frozen=True):
    """`id` names the template; `terms` maps each variable's name to its JSON text."""

    id: str | None = None
    terms: dict[str, str] | None = None
    streaming: bool | None = False


class PromptResponse(StreamRecord, msgspec.Struct, frozen=True, omit_defaults=True):
    """`error`, `text` or `object` (JSON text). Usage and model as in text completion."""

    later_words: ClassVar = LATER_WORDS
    # Always on the wire, as in text completion.
    error: Error | None = msgspec.field(default_factory=type(None))
    text: str | None = None
    object: str | None = None
    end_of_stream: bool | None = False
    in_token: Count | None = None
    out_token: Count | None = None
    model: str | None = None
    finish_reason: FinishReason | None = None

    @classmethod
    def join_whole(cls, records: Sequence[Self]) -> Sequence[Self]:
        """One record with the text of all; the last record keeps its object."""
        final = records[-1]
        return (
            cls(
                text=join_text(record.text for record in records),
                object=final.object,
                end_of_stream=final.end_of_stream,
                in_token=add_counts(record.in_token for record in records),
                out_token=add_counts(record.out_token for record in records),
                model=final.model or records[0].model,
                finish_reason=final.finish_reason,
            ),
        )

    def cut(self, size: int) -> Sequence[Self]:
        """Pieces of the text; an object is never cut."""
        parts = [{"text": piece} for piece in cut_text(self.text, size)]
        return (self,) if self.error is not None else in_parts(self, type(self)(), parts)
