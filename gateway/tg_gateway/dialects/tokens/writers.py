"""Records of token ids -> bodies in vLLM's shape."""

from collections.abc import Sequence

import msgspec
from typing_extensions import override

from tg_gateway.dialects import WholeWriter
from tg_schema import TextCompletionResponse, encode
from tg_schema.deltas import join_text


class Tokenized(msgspec.Struct, frozen=True):
    """The answer to `/tokenize`; what is unknown, or was not asked for, is null."""

    count: int
    max_model_len: int | None
    tokens: tuple[int, ...]
    token_strs: tuple[str, ...] | None


class Detokenized(msgspec.Struct, frozen=True):
    """The answer to `/detokenize`."""

    prompt: str


class TokenizeWriter(WholeWriter[TextCompletionResponse]):
    """Writes the ids, and the length of the model's context.

    Args:
        with_texts: whether the answer has the text of each token.
    """

    def __init__(self, *, with_texts: bool) -> None:
        super().__init__(TextCompletionResponse)
        self._with_texts = with_texts

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        ids = tuple(number for record in records for number in record.ids)
        lengths = [model.context_length for record in records for model in record.models if model.context_length]
        texts = tuple(token.text for record in records for token in record.tokens) if self._with_texts else None
        return encode(Tokenized(len(ids), lengths[0] if lengths else None, ids, texts))


class DetokenizeWriter(WholeWriter[TextCompletionResponse]):
    """The text."""

    def __init__(self) -> None:
        super().__init__(TextCompletionResponse)

    @override
    def body(self, records: Sequence[TextCompletionResponse]) -> bytes:
        return encode(Detokenized(join_text(record.response for record in records) or ""))
