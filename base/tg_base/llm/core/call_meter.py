"""One call of a provider -> what it has brought so far: pieces, characters and the provider's counts."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final

import msgspec

from tg_base.llm.core.chunk import LlmChunk
from tg_schema import FinishReason, Usage
from tg_schema.completion import UNCOUNTED
from tg_schema.prompt_size import TOKEN_BYTES

MAX_TOKEN_CHARACTERS: Final = 7
"""Mean length of a stream's pieces above which they are no single tokens. Many servers send token by token, of about
four characters each; others send several at once."""


class CallMeter(msgspec.Struct, kw_only=True):
    """What one call of a provider has brought so far.

    Attributes:
        server: the server of a pool that answers.
        pieces: events with content that the provider has sent, as far as they are known.
        letters: characters of their content.
        counts: what the provider has counted, in the order of `Usage`.
        first: when the first content came, in seconds since the epoch.
        finish_reason: of the answer that ended last.
        answered_by: the model that the provider names.
    """

    server: str | None = None
    pieces: int = 0
    letters: int = 0
    counts: list[int | None] = msgspec.field(default_factory=[*UNCOUNTED].copy)
    first: float | None = None
    finish_reason: FinishReason | None = None
    answered_by: str | None = None

    def note_content(self, chunk: LlmChunk) -> None:
        """Note the content of a chunk that is more than text."""
        calls = sum(len(call.name or "") + len(call.arguments) for call in chunk.tool_calls)
        self.letters += len(chunk.reasoning or "") + calls

    def estimate(self, prompt_bytes: int, *, complete: bool, answers: bool) -> Usage:
        """What the provider has counted; where it has not, an estimate by the text.

        Args:
            prompt_bytes: of the prompt's text; 0 = not known.
            complete: whether the call came to its end.
            answers: whether the answer has tokens; vectors have none.
        """
        told = Usage(*self.counts)
        prompt, answer = told.in_token, told.out_token
        if prompt is None:
            prompt = -(-prompt_bytes // TOKEN_BYTES) or None
        # Some providers count one token at the beginning, and the others at the end, which did not come.
        if answers and (answer is None or (not complete and answer < self.pieces)):
            single = self.letters <= MAX_TOKEN_CHARACTERS * self.pieces
            answer = max(answer or 0, self.pieces if single else -(-self.letters // TOKEN_BYTES))
        return msgspec.structs.replace(told, in_token=prompt, out_token=answer)


CALL: Final[ContextVar[CallMeter | None]] = ContextVar("provider_call", default=None)
"""The call that the current task reads."""


def name_server(name: str) -> None:
    """Let the record of the current task's call name the server of a pool."""
    call = CALL.get()
    if call is not None:
        call.server = name


def note_joined(chunks: Sequence[LlmChunk]) -> None:
    """Count these chunks of the current task's call, which it gets as one, piece by piece."""
    call = CALL.get()
    if call is not None:
        call.pieces += max(sum(chunk.has_content for chunk in chunks) - 1, 0)
