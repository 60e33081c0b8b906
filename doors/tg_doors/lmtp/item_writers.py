"""Records -> LMTP's items: tokens with their ids, text, or scores; and the choice among them for a stream."""

from typing import Literal, assert_never

import msgspec
from typing_extensions import override

from tg_doors.lmtp.stream_writer import Seq, StreamWriter, TokenBatch, known_logprob
from tg_schema import FinishReason, TextCompletionResponse, Token
from tg_schema.errors import ProtocolError, TooLarge


class TokenItem(msgspec.Struct, frozen=True):
    """One token. `top_logprobs` always has the token itself, as LMQL's client expects; a scored token has none."""

    token: int
    stream_id: int
    logprob: float
    finish_reason: str | None
    top_logprobs: dict[int, float] | msgspec.UnsetType
    seq: Seq


class TokenWriter(StreamWriter):
    """Writes one item for each token; the last one has the `finish_reason`.

    Records report the end after the last token. Only tokens that can be the last are held back, so that no other is
    delayed: control tokens, and the one that reaches `max_tokens`.

    Args:
        stream: the id of the stream.
        batch: takes its items.
        max_tokens: the most tokens of the answer.
        typed: whether errors contain their kind.
        tops: most alternatives of a token.
    """

    def __init__(self, stream: int, batch: TokenBatch, max_tokens: int, *, typed: bool, tops: int = 1) -> None:
        super().__init__(stream, batch, typed=typed, tops=tops)
        self._left = max_tokens
        self._held: tuple[Token, ...] = ()
        self._reason: FinishReason | None = None

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        """The items of one record.

        Raises:
            ProtocolError: the model's provider did not send the data that it announced.
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
            ending = _name_ending(self._reason)
            items = [*(self._make_item(token) for token in tokens[:-1]), self._make_item(tokens[-1], ending)]
            return self.write_items(items, last=True)
        if self._reason == "length":
            raise TooLarge("prompt and answer have filled the model's context: shorten the prompt")
        raise ProtocolError("the model's provider did not tell the token that ended the answer")

    def _make_item(self, token: Token, reason: str | None = None) -> TokenItem:
        logprob = known_logprob(token)
        top = dict(token.top)
        top.setdefault(token.id, logprob)
        return TokenItem(token.id, self.stream, logprob, reason, top, self.next_seq())


def _name_ending(reason: FinishReason | None) -> Literal["stop", "length"]:
    """The only reasons that LMQL's client accepts."""
    match reason:
        case "length":
            return "length"
        case "stop" | "tool_calls" | "content_filter" | None:
            return "stop"
        case _:
            assert_never(reason)


class _TokenItem(msgspec.Struct, frozen=True):
    token: int
    logprob: float
    top_logprobs: dict[int, float]


class _Piece(msgspec.Struct, frozen=True):
    stream_id: int
    text: str
    finish_reason: FinishReason | None
    tokens: tuple[_TokenItem, ...] | msgspec.UnsetType
    seq: Seq


class TextWriter(StreamWriter):
    """Writes an item for each record, and a last one, without text, that has the `finish_reason`.

    Args:
        stream: the id of the stream.
        batch: takes its items.
        tokens: whether each item has the tokens of its text.
        typed: whether errors say what kind they are.
        tops: most alternatives of a token.
    """

    def __init__(self, stream: int, batch: TokenBatch, *, tokens: bool, typed: bool, tops: int = 0) -> None:
        super().__init__(stream, batch, typed=typed, tops=tops)
        self._tokens = tokens
        self._reason: FinishReason | None = None

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        """The item of one record.

        Raises:
            ProtocolError: the model's provider did not send the data that it announced.
        """
        self._reason = record.finish_reason or self._reason
        if not (record.response or record.tokens):
            return b""
        tokens = tuple([_describe(token) for token in record.tokens]) if self._tokens else msgspec.UNSET
        piece = _Piece(self.stream, record.response or "", None, tokens, self.next_seq())
        return self.write_items([piece], last=False)

    @override
    def end(self) -> bytes:
        piece = _Piece(self.stream, "", self._reason or "stop", msgspec.UNSET, self.next_seq())
        return self.write_items([piece], last=True)


def _describe(token: Token) -> _TokenItem:
    logprob = known_logprob(token)
    return _TokenItem(token.id, logprob, {token.id: logprob, **dict(token.top)})


class ScoreWriter(StreamWriter):
    """Writes one item for each scored token; the last one has the `finish_reason` "stop".

    Args:
        stream: the id of the stream.
        batch: takes its items.
        count: how many tokens are scored.
        typed: whether errors say what kind they are.
    """

    def __init__(self, stream: int, batch: TokenBatch, count: int, *, typed: bool) -> None:
        super().__init__(stream, batch, typed=typed)
        self._left = count

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        """The items of one record.

        Raises:
            ProtocolError: the model's provider did not send the data that it announced.
        """
        items = []
        for token in record.tokens:
            self._left -= 1
            reason = None if self._left else "stop"
            logprob = known_logprob(token)
            items.append(TokenItem(token.id, self.stream, logprob, reason, msgspec.UNSET, self.next_seq()))
        # With a token missing, a client that sums up scores would prefer this continuation.
        if record.last and self._left:
            raise ProtocolError("the model's provider did not score every token")
        return self.write_items(items, last=record.last)


class StreamForm(msgspec.Struct, frozen=True):
    """The form of a stream's items, from its GENERATE or SCORE.

    Attributes:
        kind: the kind of items.
        tokens: maximum tokens of the answer; for a SCORE, the exact number.
        tops: most alternatives of a token; None = neither alternatives nor the tokens of a text are sent.
        request: the request's digest (`digest_request`); "" = it has no `request_key`.
    """

    kind: Literal["ids", "text", "score"]
    tokens: int
    tops: int | None = None
    request: str = ""

    def make_writer(self, stream: int, batch: TokenBatch, *, typed: bool) -> StreamWriter:
        """The writer of such items.

        Args:
            stream: the id of the stream.
            batch: takes the items.
            typed: whether errors say what kind they are.
        """
        if self.kind == "score":
            return ScoreWriter(stream, batch, self.tokens, typed=typed)
        if self.kind == "ids":
            return TokenWriter(stream, batch, self.tokens, typed=typed, tops=self.tops or 0)
        return TextWriter(stream, batch, tokens=self.tops is not None, typed=typed, tops=self.tops or 0)
