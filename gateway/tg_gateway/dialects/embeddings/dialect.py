"""Embeddings, scores and rankings over HTTP: how requests, answers and errors are encoded, in OpenAI's style."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final, Literal

import msgspec
from typing_extensions import override

from tg_gateway.dialects import (
    ASKING,
    Ask,
    Batch,
    Call,
    Description,
    FoundModel,
    InvalidParameter,
    Mount,
    list_unknown,
    show_ignored,
)
from tg_gateway.dialects.chat import (
    DIALECT,
    Failure,
    OpenAiShaped,
    decode_body,
    find_asked_model,
    read_inputs,
    refuse_unsupported,
)
from tg_gateway.dialects.embeddings.bodies import EmbeddingsBody, RerankBody, ScoreBody, VectorsBody
from tg_gateway.dialects.embeddings.vectors import (
    MAX_INPUTS,
    VectorUsage,
    VectorWriter,
    make_vector_requests,
)
from tg_gateway.dialects.embeddings.writers import EmbeddingsWriter, Ranking, RerankWriter, Scores, ScoreWriter
from tg_schema import TextCompletionRequest

_describe = partial(Description, group="Vectors and scores", failure=Failure, raises=ASKING)
_DOCUMENTS: Final[Any] = ("Cats purr.", "Brokers carry messages.")


class Embedding(msgspec.Struct, frozen=True):
    """The vector of one input: numbers, or little-endian 32-bit floats in base64."""

    index: int
    embedding: tuple[float, ...] | str
    object: Literal["embedding"]


class Embeddings(msgspec.Struct, frozen=True):
    """The answer to `/v1/embeddings`, as `EmbeddingsWriter` writes it piece by piece."""

    object: Literal["list"]
    data: tuple[Embedding, ...]
    model: str
    usage: VectorUsage | msgspec.UnsetType = msgspec.UNSET


_BODIES: Final[Mapping[str, type[VectorsBody]]] = {"embed": EmbeddingsBody, "score": ScoreBody, "rerank": RerankBody}


class EmbeddingsApi(OpenAiShaped):
    """`/v1/embeddings` as OpenAI's SDKs ask for it, `/score` and `/rerank` as vLLM's and Jina's clients do."""

    descriptions: ClassVar[Mapping[str, Description]] = {
        "embed": _describe(
            summary="Make vectors of texts",
            body=EmbeddingsBody,
            required=("model", "input"),
            answer=Embeddings,
            examples={
                "numbers": {"model": "tinydemo", "input": ["One", "Two"]},
                "base64": {"model": "tinydemo", "input": "One", "encoding_format": "base64"},
            },
        ),
        "score": _describe(
            summary="Score pairs of texts",
            body=ScoreBody,
            required=("text_1", "text_2"),
            answer=Scores,
            examples={"pairs": {"text_1": "What is a broker?", "text_2": _DOCUMENTS}},
        ),
        "rerank": _describe(
            summary="Rank documents by a query",
            body=RerankBody,
            required=("query", "documents"),
            answer=Ranking,
            examples={"documents": {"query": "What is a broker?", "documents": _DOCUMENTS, "top_n": 1}},
        ),
    }

    @override
    def parse(self, call: Call) -> Ask:
        body = decode_body(_BODIES[call.operation], call.body)
        found = find_asked_model(call, body.model, required=call.operation == "embed")
        match body:
            case EmbeddingsBody():
                asked, writer = _read_embeddings(body, found)
            case ScoreBody():
                asked, writer = _read_score(body, found)
            case RerankBody():
                asked, writer = _read_rerank(body, found)
        ignored = show_ignored(DIALECT, list_unknown(call.body, type(body)))
        return Ask(found.route, Batch(asked, uniform=True), writer, streaming=False, headers=ignored)


_Asked = tuple[tuple[TextCompletionRequest, ...], VectorWriter]


def _read_embeddings(body: EmbeddingsBody, found: FoundModel) -> _Asked:
    inputs = read_inputs("input", body.input, MAX_INPUTS)
    asked = make_vector_requests(body, found, [(None, inputs)], dimensions=body.dimensions)
    model = found.model or body.model or ""
    return asked, EmbeddingsWriter(asked, model, in_base64=body.encoding_format == "base64")


def _read_score(body: ScoreBody, found: FoundModel) -> _Asked:
    lefts = read_inputs("text_1", body.text_1, MAX_INPUTS)
    rights = read_inputs("text_2", body.text_2, MAX_INPUTS)
    if len(lefts) not in {1, len(rights)}:
        raise InvalidParameter("text_1 must be one text, or have as many as text_2", "text_1", "invalid_value")
    asked = make_vector_requests(body, found, [("query", lefts), ("document", rights)])
    return asked, ScoreWriter(asked, found.model or "", len(lefts))


def _read_rerank(body: RerankBody, found: FoundModel) -> _Asked:
    refuse_unsupported(body, {"max_chunks_per_doc": "documents are not cut in chunks; leave it out"})
    query = read_inputs("query", body.query, MAX_INPUTS)
    documents = body.documents
    texts = None if documents is None else tuple(each if isinstance(each, str) else each.text for each in documents)
    listed = read_inputs("documents", texts, MAX_INPUTS)
    asked = make_vector_requests(body, found, [("query", query), ("document", listed)])
    return asked, RerankWriter(
        asked,
        found.model or "",
        [str(text) for text in listed],
        body.top_n or len(listed),
        with_text=body.return_documents is not False,
    )


EMBEDDINGS: Final = EmbeddingsApi()

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("POST", "/v1/embeddings", EMBEDDINGS, "embed", large=True),
    Mount("POST", "/score", EMBEDDINGS, "score", large=True),
    Mount("POST", "/v1/score", EMBEDDINGS, "score", large=True),
    Mount("POST", "/rerank", EMBEDDINGS, "rerank", large=True),
    Mount("POST", "/v1/rerank", EMBEDDINGS, "rerank", large=True),
    Mount("POST", "/v2/rerank", EMBEDDINGS, "rerank", large=True),
)
"""Where vectors and scores can be asked for: OpenAI's path, vLLM's, and Jina's for reranking."""
