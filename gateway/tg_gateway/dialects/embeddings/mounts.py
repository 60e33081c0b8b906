"""Where vectors and scores can be asked for: OpenAI's path, vLLM's, and Jina's for reranking."""

from typing import Final

from tg_gateway.dialects import Mount
from tg_gateway.dialects.embeddings.dialect import EMBEDDINGS

EMBEDDINGS_MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/embeddings", EMBEDDINGS, "embed", large=True),
    Mount("POST", "/score", EMBEDDINGS, "score", large=True),
    Mount("POST", "/v1/score", EMBEDDINGS, "score", large=True),
    Mount("POST", "/rerank", EMBEDDINGS, "rerank", large=True),
    Mount("POST", "/v1/rerank", EMBEDDINGS, "rerank", large=True),
    Mount("POST", "/v2/rerank", EMBEDDINGS, "rerank", large=True),
)
