"""Records -> TOKEN messages of a SCORE: one item for each scored token, in order."""

import msgspec
from typing_extensions import override

from tg_doors.lmtp.stream_writer import Seq, StreamWriter, known_logprob
from tg_doors.lmtp.token_batch import TokenBatch
from tg_schema import TextCompletionResponse
from tg_schema.errors import ProtocolError


class ScoreItem(msgspec.Struct, frozen=True):
    """One scored token."""

    token: int
    stream_id: int
    logprob: float
    finish_reason: str | None = None
    seq: Seq = msgspec.UNSET


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
            ProtocolError: the model's provider did not tell what it announced.
        """
        items = []
        for token in record.tokens:
            self._left -= 1
            reason = None if self._left else "stop"
            items.append(ScoreItem(token.id, self.stream, known_logprob(token), reason, self.next_seq()))
        # A client that sums up scores would take the shorter list for the better continuation.
        if record.last and self._left:
            raise ProtocolError("the model's provider did not score every token")
        return self.write_items(items, last=record.last)
