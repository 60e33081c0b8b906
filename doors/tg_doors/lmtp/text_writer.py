"""Records -> TOKEN messages of a GENERATE in text mode: whole characters as they come, from any model."""

import msgspec
from typing_extensions import override

from tg_doors.lmtp.stream_writer import Seq, StreamWriter, known_logprob
from tg_doors.lmtp.token_batch import TokenBatch
from tg_schema import TextCompletionResponse, Token


class _TokenItem(msgspec.Struct, frozen=True):
    token: int
    logprob: float
    top_logprobs: dict[int, float]


class _Piece(msgspec.Struct, frozen=True):
    stream_id: int
    text: str
    finish_reason: str | None = None
    seq: Seq = msgspec.UNSET


class _PieceWithTokens(msgspec.Struct, frozen=True):
    stream_id: int
    text: str
    finish_reason: str | None
    tokens: tuple[_TokenItem, ...]
    seq: Seq = msgspec.UNSET


class TextWriter(StreamWriter):
    """Writes an item for each record, and a last one, without text, that has the `finish_reason`.

    Args:
        stream: the id of the stream.
        batch: takes its items.
        tokens: whether each item has the tokens of its text.
        typed: whether errors say what kind they are.
        tops: alternatives of a token, at most.
    """

    def __init__(self, stream: int, batch: TokenBatch, *, tokens: bool, typed: bool, tops: int = 0) -> None:
        super().__init__(stream, batch, typed=typed, tops=tops)
        self._tokens = tokens
        self._reason: str | None = None

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        """The item of one record.

        Raises:
            ProtocolError: the model's provider did not tell what it announced.
        """
        self._reason = record.finish_reason or self._reason
        if not (record.response or record.tokens):
            return b""
        if not self._tokens:
            return self.write_items([_Piece(self.stream, record.response or "", None, self.next_seq())], last=False)
        tokens = tuple(_describe(token) for token in record.tokens)
        return self.write_items(
            [_PieceWithTokens(self.stream, record.response or "", None, tokens, self.next_seq())], last=False
        )

    @override
    def end(self) -> bytes:
        return self.write_items([_Piece(self.stream, "", self._reason or "stop", self.next_seq())], last=True)


def _describe(token: Token) -> _TokenItem:
    logprob = known_logprob(token)
    return _TokenItem(token.id, logprob, {token.id: logprob, **dict(token.top)})
