"""What the writers of LMTP's streams share: the error that ends one, and what a token must have to be told."""

from typing_extensions import override

from tg_gateway.dialects import Writer
from tg_gateway.dialects.lmtp.errors import encode_stream_error
from tg_schema import TextCompletionResponse, TgError, Token
from tg_schema.completion import NO_TOKEN_ID
from tg_schema.errors import ProtocolError


class StreamWriter(Writer[TextCompletionResponse]):
    """Of one stream.

    Args:
        stream: its id.
        typed: whether errors say what kind they are.
    """

    def __init__(self, stream: int, *, typed: bool) -> None:
        self.stream = stream
        self._typed = typed

    @override
    def fail(self, error: TgError) -> bytes:
        return encode_stream_error(self.stream, error, typed=self._typed)


def known_logprob(token: Token) -> float:
    """Its log-probability.

    Raises:
        ProtocolError: the provider has told none, or no id.
    """
    if token.logprob is None or token.id == NO_TOKEN_ID:
        raise ProtocolError("the model's provider did not tell the ids and log-probabilities of its tokens")
    return token.logprob
