"""Records -> TOKEN messages of a GENERATE: each token with its id and log-probabilities."""

import msgspec
from typing_extensions import override

from tg_doors.lmtp.stream_writer import Seq, StreamWriter, known_logprob
from tg_doors.lmtp.token_batch import TokenBatch
from tg_schema import TextCompletionResponse, Token
from tg_schema.errors import ProtocolError, TooLarge


class TokenItem(msgspec.Struct, frozen=True):
    """One token. `top_logprobs` always has the token itself, as LMQL's client expects."""

    token: int
    stream_id: int
    logprob: float
    finish_reason: str | None
    top_logprobs: dict[int, float]
    seq: Seq = msgspec.UNSET


class TokenWriter(StreamWriter):
    """Writes one item for each token; the last one has the `finish_reason`.

    Records tell the end after the last token. So that no token is late for it, only those are held back that can be
    the last: control tokens, and the one that reaches `max_tokens`.

    Args:
        stream: the id of the stream.
        batch: takes its items.
        max_tokens: of the answer.
        typed: whether errors say what kind they are.
        tops: alternatives of a token, at most.
    """

    def __init__(self, stream: int, batch: TokenBatch, max_tokens: int, *, typed: bool, tops: int = 1) -> None:
        super().__init__(stream, batch, typed=typed, tops=tops)
        self._left = max_tokens
        self._held: tuple[Token, ...] = ()
        self._reason: str | None = None

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        """The items of one record.

        Raises:
            ProtocolError: the model's provider did not tell what it announced.
            TooLarge: the answer ended because the model's context is full.
        """
        tokens = record.tokens
        self._left -= len(tokens)
        if self._held:
            tokens, self._held = (*self._held, *tokens), ()
        if record.finish_reason is not None:
            self._reason = record.finish_reason
        if record.last:
            return self._write_last(tokens)
        if tokens and (tokens[-1].special or self._left <= 0):
            tokens, self._held = tokens[:-1], tokens[-1:]
        return self.write_items([self._make_item(token) for token in tokens], last=False)

    def _write_last(self, tokens: tuple[Token, ...]) -> bytes:
        if tokens:
            reason = "length" if self._reason == "length" else "stop"
            items = [*(self._make_item(token) for token in tokens[:-1]), self._make_item(tokens[-1], reason)]
            return self.write_items(items, last=True)
        if self._reason == "length":
            raise TooLarge("prompt and answer have filled the model's context: shorten the prompt")
        raise ProtocolError("the model's provider did not tell the token that ended the answer")

    def _make_item(self, token: Token, reason: str | None = None) -> TokenItem:
        logprob = known_logprob(token)
        top = dict(token.top)
        top.setdefault(token.id, logprob)
        return TokenItem(token.id, self.stream, logprob, reason, top, self.next_seq())
