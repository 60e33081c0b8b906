"""TextCompletionRequest -> Amazon Bedrock's Converse API -> LlmChunks, for models of every family."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
from typing_extensions import override

from tg_base.llm import Frames, KeyedConnection, ModelOptions, SdkConnection, SdkProvider, SdkWire, find_key
from tg_base.runtime import start_daemon_thread
from tg_bedrock.request import to_wire
from tg_bedrock.stream import StreamDecoder, list_models
from tg_schema import TextCompletionRequest
from tg_schema.features import Feature

if TYPE_CHECKING:
    from types_boto3_bedrock_runtime.type_defs import ConverseStreamRequestTypeDef


class BedrockOptions(ModelOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of models on Bedrock. Credentials are found where AWS's own tools look for them.

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


def _make_frames() -> Frames:
    # `open` has already imported it, together with the SDK.
    frames: Frames = import_module("tg_bedrock.event_frames").EventFrames()
    return frames


class Bedrock(SdkProvider[BedrockOptions]):
    """A model on Bedrock."""

    features: frozenset[Feature] = frozenset(
        {"history", "images", "tools", "schema", "stop", "top_p", "strict_tools", "reasoning"}
    )
    wire = SdkWire(client="tg_bedrock.client", frames=_make_frames, listed=list_models)

    def __init__(self, model: str, options: BedrockOptions, connection: KeyedConnection[SdkConnection]) -> None:
        super().__init__(model, options, connection)
        self.usage_patience = options.usage_patience

    @classmethod
    @override
    async def open(cls, model: str, options: BedrockOptions) -> Self:
        module = await start_daemon_thread(lambda: import_module("tg_bedrock.client"), "import tg_bedrock.client")
        connect = partial(module.BedrockClient.open, options.region, options.profile, options.endpoint_url)
        key = find_key((module.KEY_VARIABLE,), needed=False)
        return cls(model, options, await KeyedConnection[SdkConnection].open(key, connect))

    @override
    def body(self, request: TextCompletionRequest) -> "Callable[[], ConverseStreamRequestTypeDef]":
        # Build the body in the thread that signs it: on the event loop, a large one would delay all other streams.
        return partial(
            to_wire,
            request,
            self.upstream_model,
            self.options.sampling(request),
            self.options.model_fields,
            by_thinking=self.options.reasoning_by == "thinking",
        )

    @override
    def needs_prompt(self, request: TextCompletionRequest) -> bool:
        return True

    @override
    def decoder(self, request: TextCompletionRequest) -> StreamDecoder:
        return StreamDecoder()
