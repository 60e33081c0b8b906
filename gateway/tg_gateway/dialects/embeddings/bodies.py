"""The bodies of `/v1/embeddings`, by OpenAI's API reference, and of `/score` and `/rerank`, by vLLM's and Jina's."""

from typing import Annotated, Any, Literal

import msgspec

from tg_gateway.dialects.chat import TextInputs

Dimensions = Annotated[int, msgspec.Meta(ge=1, le=2**20)]


class VectorsBody(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of all three; null means absent.

    Attributes:
        truncate_prompt_tokens: vLLM's; -1 truncates a text to the model's context. Without it, a longer text is
            refused.
    """

    model: str | None = None
    truncate_prompt_tokens: int | None = None
    user: str | None = None
    priority: int | None = None


class EmbeddingsBody(VectorsBody, frozen=True, kw_only=True):
    """`POST /v1/embeddings`."""

    input: TextInputs | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None


class ScoreBody(VectorsBody, frozen=True, kw_only=True):
    """`POST /score`: each of `text_1` with the one of `text_2` in its place, or the only one with all."""

    text_1: str | tuple[str, ...] | None = None
    text_2: str | tuple[str, ...] | None = None


class Document(msgspec.Struct, frozen=True):
    """A document with a text."""

    text: str


class RerankBody(VectorsBody, frozen=True, kw_only=True):
    """`POST /rerank`. `top_n` = 0 is all."""

    query: str | None = None
    documents: tuple[str | Document, ...] | None = None
    top_n: Annotated[int, msgspec.Meta(ge=0)] | None = None
    return_documents: bool | None = None

    # Refused, since they would change the answers.
    max_chunks_per_doc: Any = None
