"""What the writers of LMTP's streams share: the error that ends one, and what a token must have to be told."""

from collections.abc import Sequence

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Writer
from tg_gateway.dialects.lmtp.errors import encode_stream_error
from tg_gateway.dialects.lmtp.token_batch import TokenBatch
from tg_schema import TextCompletionResponse, TgError, Token
from tg_schema.completion import NO_TOKEN_ID
from tg_schema.errors import ProtocolError


class StreamWriter(Writer[TextCompletionResponse]):
    """Of one stream.

    Args:
        stream: its id.
        batch: takes its items, and those of the other streams.
        typed: whether errors say what kind they are.
        tops: alternatives of an item, at most.
    """

    def __init__(self, stream: int, batch: TokenBatch, *, typed: bool, tops: int = 0) -> None:
        self.stream = stream
        self._batch = batch
        self._typed = typed
        self._width = 1 + tops

    def tell(self, items: Sequence[msgspec.Struct], *, last: bool) -> bytes:
        """Send these. With the last ones, the bytes of all that waits: nothing follows which could wait with them."""
        self._batch.add(items, self._width)
        return self._batch.take() if last else b""

    @override
    def fail(self, error: TgError) -> bytes:
        return self._batch.take() + encode_stream_error(self.stream, error, typed=self._typed)


def known_logprob(token: Token) -> float:
    """Its log-probability.

    Raises:
        ProtocolError: the provider has told none, or no id.
    """
    if token.logprob is None or token.id == NO_TOKEN_ID:
        raise ProtocolError("the model's provider did not tell the ids and log-probabilities of its tokens")
    return token.logprob
