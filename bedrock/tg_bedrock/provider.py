"""TextCompletionRequest -> Amazon Bedrock's Converse API -> LlmChunks, for models of every family."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from typing_extensions import override

from tg_base.llm import KeyedConnection, LlmChunk, LlmService, ModelOptions, find_key, join_chunks
from tg_base.runtime import start_daemon_thread
from tg_bedrock.request import to_wire
from tg_bedrock.threaded_stream import ThreadedStream
from tg_schema import ModelInfo, TextCompletionRequest, TgError
from tg_schema.errors import Timeout
from tg_schema.features import Feature

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.type_defs import ConverseStreamRequestTypeDef

    from tg_bedrock.client import BedrockClient


class BedrockOptions(ModelOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of models on Bedrock. Credentials are found as by AWS's tools.

    Attributes:
        upstream_model: id of the model or of an inference profile, or an ARN; None = the model's name here.
        region: the AWS region; None = `AWS_REGION`, `AWS_DEFAULT_REGION`, or the profile's.
        profile: a profile of ~/.aws/credentials; None = `AWS_PROFILE`, or none.
        endpoint_url: Bedrock's URL if it is not AWS's own, for instance a private link; None =
            `AWS_ENDPOINT_URL_BEDROCK_RUNTIME` (for lists of models `AWS_ENDPOINT_URL_BEDROCK`), `AWS_ENDPOINT_URL` or
            the profile's.
        reasoning_by: how a request's reasoning is sent: "effort" to models with an effort, "thinking" to Claude, which
            also takes a budget.
        model_fields: fields of this model only, sent unchanged as `additionalModelRequestFields`.
        usage_patience: seconds to wait for the usage of a finished answer; without it the answer is still complete.
    """

    region: str | None = None
    profile: str | None = None
    endpoint_url: str | None = None
    reasoning_by: Literal["effort", "thinking"] = "effort"
    model_fields: dict[str, Any] = msgspec.field(default_factory=dict)
    usage_patience: Annotated[float, msgspec.Meta(ge=0.0)] = 5.0


class Bedrock(LlmService[BedrockOptions]):
    """A model on Bedrock. Each stream has a thread of its own, because boto3 only has blocking calls."""

    features: frozenset[Feature] = frozenset(
        {"history", "images", "tools", "schema", "stop", "top_p", "strict_tools", "reasoning"}
    )

    def __init__(self, model: str, options: BedrockOptions, client: "KeyedConnection[BedrockClient]") -> None:
        super().__init__(model, options)
        self._client = client
        self._threads = ThreadPoolExecutor(self.capacity, thread_name_prefix="bedrock")

    @classmethod
    @override
    async def open(cls, model: str, options: BedrockOptions) -> Self:
        module = await start_daemon_thread(lambda: import_module("tg_bedrock.client"), "import tg_bedrock.client")
        place = (options.region, options.profile, options.endpoint_url, cls.capacity)
        key = find_key((module.KEY_VARIABLE,), needed=False)
        connect = partial(module.BedrockClient.open, *place)
        return cls(model, options, await KeyedConnection.open_in_thread(key, connect))

    @override
    async def generate_content_stream(self, request: TextCompletionRequest) -> AsyncGenerator[LlmChunk, None]:
        finished = False
        async with (
            self._client.lend() as client,
            # The request is made there as well: a large one would hold up all other streams.
            ThreadedStream(self._threads, lambda: client.chunks(self._wire(request))) as stream,
        ):
            while not finished and (batch := await stream.batch()):
                for chunk in batch if len(batch) == 1 else join_chunks(batch):
                    finished = finished or chunk.finish_reason is not None
                    yield chunk
            if finished:
                for chunk in join_chunks(await _rest(stream, self.options.usage_patience)):
                    yield chunk

    @override
    async def models(self) -> tuple[ModelInfo, ...]:
        found: list[ModelInfo] = []
        try:
            async with (
                asyncio.timeout(self.clocks.first_token),
                self._client.lend() as client,
                ThreadedStream(self._threads, client.models) as stream,
            ):
                while batch := await stream.batch():
                    found.extend(batch)
        except TimeoutError:
            raise Timeout("the provider took too long to list its models; ask again") from None
        return tuple(found)

    @override
    async def aclose(self) -> None:
        await super().aclose()
        # The threads first, since they use the client.
        await asyncio.to_thread(self._threads.shutdown)
        await self._client.aclose()

    def _wire(self, request: TextCompletionRequest) -> "ConverseStreamRequestTypeDef":
        options = self.options
        return to_wire(
            request,
            self.upstream_model,
            options.sampling(request),
            options.model_fields,
            by_thinking=options.reasoning_by == "thinking",
        )


async def _rest(stream: "ThreadedStream[LlmChunk]", patience: float) -> list[LlmChunk]:
    """The usage that follows a finished answer; errors from here on are ignored."""
    chunks: list[LlmChunk] = []
    with suppress(TimeoutError, TgError):
        async with asyncio.timeout(patience):
            while batch := await stream.batch():
                chunks.extend(batch)
    return chunks
