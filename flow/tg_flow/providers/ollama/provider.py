"""TextCompletionRequest -> Ollama's own API (`/api/chat`) -> LlmChunks."""

import os
from typing import Literal

from typing_extensions import override

from tg_base.llm import EventDecoder, JsonLines, RemoteOptions, SdkProvider, SdkWire, set_fields
from tg_flow.providers.ollama.request import to_wire
from tg_flow.providers.ollama.stream import StreamDecoder, model_list, read_embeddings
from tg_schema import COMMON_FEATURES, TextCompletionRequest, encode
from tg_schema.features import Feature


class OllamaOptions(RemoteOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of Ollama.

    Attributes:
        base_url_variables: the SDK's own variable, which may be only a host; the default is port 11434 of this machine.
        key_variables: the SDK's own variable, for ollama.com.
        effort_by: how a request's reasoning effort is sent: as a "switch", or as a "level" to models that have levels.
        think: whether or how much the model thinks before it answers; None = the model's default.
        num_ctx: the context length in tokens with which the model is loaded; None = the server's default, which
            silently truncates longer prompts.
        keep_alive: how long the model stays loaded after a request, for instance "10m"; None = the server's default.
    """

    base_url_variables: tuple[str, ...] = ("OLLAMA_HOST",)
    key_variables: tuple[str, ...] = ("OLLAMA_API_KEY",)
    key_needed: bool = False
    think: bool | Literal["low", "medium", "high"] | None = None
    effort_by: Literal["switch", "level"] = "switch"
    num_ctx: int | None = None
    keep_alive: str | None = None

    @override
    def url(self) -> str | None:
        """The URL, or a host with or without a port, which the SDK completes. So it is not checked as a URL."""
        urls = (os.environ.get(name, "").strip() for name in self.base_url_variables)
        return self.base_url or next((url for url in urls if url), self.default_base_url)


class Ollama(SdkProvider[OllamaOptions]):
    """A model of an Ollama server."""

    features: frozenset[Feature] = COMMON_FEATURES | {
        *("reasoning", "min_p", "typical_p", "repetition_penalty"),
        *("embed", "truncate"),
    }
    optional_features = frozenset({"dimensions"})
    wire = SdkWire(
        client="tg_flow.providers.ollama.client", listed=model_list, frames=JsonLines, embedded=read_embeddings
    )

    @override
    def body(self, request: TextCompletionRequest) -> bytes:
        options = self.options
        return encode(
            to_wire(
                request,
                self.upstream_model,
                options.sampling(request),
                think=options.think,
                num_ctx=options.num_ctx,
                keep_alive=options.keep_alive,
                levels=options.effort_by == "level",
            )
        )

    @override
    def embedding_body(self, request: TextCompletionRequest) -> bytes:
        body = set_fields(
            model=self.upstream_model,
            input=request.texts,
            truncate=request.truncate,
            dimensions=request.dimensions,
            keep_alive=self.options.keep_alive,
            options=set_fields(num_ctx=self.options.num_ctx) or None,
        )
        return encode(body)

    @override
    def decoder(self, request: TextCompletionRequest) -> EventDecoder:
        return StreamDecoder()
