"""OpenAI's list of embeddings -> Embeddings: several providers answer in its shape."""

import msgspec

from tg_base.llm.operations import Embeddings


class _Embedding(msgspec.Struct, frozen=True):
    embedding: tuple[float, ...]
    index: int = 0


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int | None = None


class _List(msgspec.Struct, frozen=True):
    data: tuple[_Embedding, ...]
    usage: _Usage | None = None


def embedding_list(body: bytes) -> Embeddings:
    """The vectors in an answer to `POST /embeddings`, in the order of their texts."""
    answer = msgspec.json.decode(body, type=_List)
    vectors = tuple([each.embedding for each in sorted(answer.data, key=lambda each: each.index)])
    return Embeddings(vectors, answer.usage.prompt_tokens if answer.usage else None)
