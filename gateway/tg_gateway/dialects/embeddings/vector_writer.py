"""Records with vectors -> one body: each vector is used when it comes, and is not kept."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import Writer
from tg_gateway.dialects.embeddings.vector_requests import VectorRequests
from tg_schema import TextCompletionResponse, TgError
from tg_schema.errors import ProtocolError

Vector = Sequence[float]
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class VectorUsage(msgspec.Struct, frozen=True):
    """The tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class VectorWriter(Writer[TextCompletionResponse]):
    """Numbers the vectors by their inputs.

    Args:
        asked: the requests that the records answer.

    Attributes:
        usage: what the provider has counted; None = nothing.
    """

    content_type = "application/json"
    headers = _NO_HEADERS
    keep_alive = b""

    def __init__(self, asked: VectorRequests) -> None:
        self._next = list(asked.starts)
        self._ends = (*asked.starts[1:], asked.count)
        self._count = asked.count
        self.usage: VectorUsage | None = None

    @override
    def write(self, record: TextCompletionResponse) -> bytes:
        if record.in_token is not None:
            count = record.in_token + (self.usage.prompt_tokens if self.usage else 0)
            self.usage = VectorUsage(count, count)
        for vector in record.vectors:
            if record.index >= len(self._next) or self._next[record.index] == self._ends[record.index]:
                raise ProtocolError("the model sent more vectors than were asked for; ask again, or another model")
            self.take(self._next[record.index], vector)
            self._next[record.index] += 1
        return b""

    @override
    def end(self) -> bytes:
        if tuple(self._next) != self._ends:
            raise ProtocolError("the model sent fewer vectors than were asked for; ask again, or another model")
        return self.body()

    @override
    def fail(self, error: TgError) -> bytes:
        return b""

    @abstractmethod
    def take(self, number: int, vector: Vector) -> None:
        """The vector of an input.

        Raises:
            TgError: the answer becomes too large, or is malformed.
        """

    @abstractmethod
    def body(self) -> bytes:
        """The answer, after the last vector."""
