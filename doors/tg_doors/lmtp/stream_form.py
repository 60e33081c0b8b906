"""The form of a stream's items -> the writer that makes them, on its first socket or on a later one."""

from typing import Literal

import msgspec

from tg_doors.lmtp.score_writer import ScoreWriter
from tg_doors.lmtp.stream_writer import StreamWriter
from tg_doors.lmtp.text_writer import TextWriter
from tg_doors.lmtp.token_batch import TokenBatch
from tg_doors.lmtp.token_writer import TokenWriter


class StreamForm(msgspec.Struct, frozen=True):
    """The form of a stream's items, from its GENERATE or SCORE.

    Attributes:
        kind: what the items are.
        tokens: maximum tokens of the answer; for a SCORE, the exact number.
        tops: alternatives of a token, at most; None = none are told, nor the tokens of a text.
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
