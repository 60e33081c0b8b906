"""Inputs -> requests for their vectors -> records with vectors -> one body.

Each vector is used when it comes, and is not kept.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import msgspec
from typing_extensions import override

from tg_gateway.dialects import BodyWriter, FoundModel, InvalidParameter
from tg_gateway.dialects.chat import TextInput
from tg_gateway.dialects.embeddings.bodies import VectorsBody
from tg_schema import TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import ProtocolError, TooLarge
from tg_schema.text_completion import Purpose

MAX_INPUTS: Final = 2048
"""The most inputs of one request (OpenAI's limit)."""
INPUTS_PER_REQUEST: Final = 64
"""Inputs of one request record: several processors share the work of a long list."""


def make_vector_requests(
    body: VectorsBody, found: FoundModel, lists: Sequence[tuple[Purpose | None, Sequence[TextInput]]], **fields: Any
) -> tuple[TextCompletionRequest, ...]:
    """The requests for the vectors of all lists, numbered through.

    Args:
        body: the client's body.
        found: the model that its `model` means.
        lists: inputs, and what their vectors are for.
        fields: further fields of the records.

    Raises:
        BadRequest: the model is a plain peer's, or a field asks for what no record has.
    """
    if body.truncate_prompt_tokens not in {None, -1}:
        raise InvalidParameter(
            "truncate_prompt_tokens must be -1: texts are cut at the model's context, or not at all",
            "truncate_prompt_tokens",
            "unsupported_value",
        )
    requests = tuple(
        TextCompletionRequest(
            operation="embed",
            model=found.model,
            adapter=found.adapter,
            texts=tuple(each for each in group if isinstance(each, str)),
            id_lists=tuple(each for each in group if not isinstance(each, str)),
            truncate=body.truncate_prompt_tokens is not None,
            purpose=purpose,
            user=body.user,
            priority=body.priority,
            **fields,
        )
        for purpose, inputs in lists
        for group in _groups(inputs)
    )
    found.check(*requests)
    return requests


def _groups(inputs: Sequence[TextInput]) -> list[list[TextInput]]:
    """Group neighbours of one kind: a record has either texts or ids."""
    groups: list[list[TextInput]] = []
    for each in inputs:
        if not groups or len(groups[-1]) == INPUTS_PER_REQUEST or type(groups[-1][0]) is not type(each):
            groups.append([])
        groups[-1].append(each)
    return groups


Vector = Sequence[float]


class VectorUsage(msgspec.Struct, frozen=True):
    """The tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class VectorWriter(BodyWriter[TextCompletionResponse]):
    """Numbers the vectors by their inputs.

    Args:
        requests: the requests that the records answer; not kept, since they may be long.

    Attributes:
        count: the number of their inputs.
        usage: the provider's counts; None = none.
    """

    def __init__(self, requests: Sequence[TextCompletionRequest]) -> None:
        self._ends = tuple(accumulate(len(each.texts) + len(each.id_lists) for each in requests))
        self._next = [0, *self._ends][: len(requests)]
        self.count = self._ends[-1] if requests else 0
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

    @abstractmethod
    def take(self, number: int, vector: Vector) -> None:
        """The vector of an input.

        Raises:
            TgError: the answer becomes too large, or is malformed.
        """

    @abstractmethod
    def body(self) -> bytes:
        """The answer, after the last vector."""


MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all vectors of one answer, as JSON."""


class EncodedVectors:
    """Encodes each vector when it comes, so that the end of a long list does not take long.

    Args:
        count: the count of the inputs.
    """

    def __init__(self, count: int) -> None:
        self._encoded = [b""] * count
        self._size = 0

    def add(self, number: int, encoded: bytes) -> None:
        """The vector of an input.

        Raises:
            TooLarge: all together are larger than an answer may be.
        """
        self._size += len(encoded)
        if self._size > MAX_ANSWER_BYTES:
            # Nobody reads them any more, and the stream may take a while to end.
            self._encoded.clear()
            raise TooLarge(f"the embeddings have more than {MAX_ANSWER_BYTES} bytes; ask for fewer at a time")
        self._encoded[number] = encoded

    def join(self) -> bytes:
        """Join all vectors, with commas between them."""
        return b",".join(self._encoded)
