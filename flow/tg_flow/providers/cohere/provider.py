"""TextCompletionRequest -> Cohere's own API (Chat, version 2), by its SDK -> LlmChunks."""

from typing_extensions import override

from tg_base.llm import EventDecoder, RemoteOptions, SdkProvider, SdkWire, set_fields
from tg_flow.providers.cohere.request import to_wire
from tg_flow.providers.cohere.stream import StreamDecoder, model_list, read_embeddings
from tg_schema import COMMON_FEATURES, TextCompletionRequest, encode
from tg_schema.features import Feature


class CohereOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Cohere.

    Attributes:
        base_url_variables: the SDK's own variable.
        key_variables: our variable, the SDK's own, and TrustGraph's.
        thinking: whether a reasoning model thinks before it answers, or the most tokens that it may think; None = the
            model's default. Thinking text is returned as `reasoning`.
    """

    base_url_variables: tuple[str, ...] = ("CO_API_URL",)
    key_variables: tuple[str, ...] = ("COHERE_API_KEY", "CO_API_KEY", "COHERE_KEY")
    thinking: bool | int | None = None


class Cohere(SdkProvider[CohereOptions]):
    """Cohere's Chat API."""

    features: frozenset[Feature] = (COMMON_FEATURES - {"logprobs"}) | {"reasoning", "strict_tools"}
    optional_features = frozenset({"embed", "dimensions", "truncate"})
    wire = SdkWire(client="tg_flow.providers.cohere.client", listed=model_list, embedded=read_embeddings)

    @override
    def body(self, request: TextCompletionRequest) -> bytes:
        options = self.options
        return encode(to_wire(request, self.upstream_model, options.sampling(request), thinking=options.thinking))

    @override
    def embedding_body(self, request: TextCompletionRequest) -> bytes:
        body = set_fields(
            model=self.upstream_model,
            texts=request.texts,
            input_type="search_query" if request.purpose == "query" else "search_document",
            embedding_types=("float",),
            truncate="END" if request.truncate else "NONE",
            output_dimension=request.dimensions,
        )
        return encode(body)

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder()
