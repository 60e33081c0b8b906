"""The fields that the bodies of chats and of completions share: OpenAI's API reference, and vLLM's further ones."""

from typing import Annotated, Any

import msgspec

from tg_schema.sampling import Choices, Fraction, Penalty, TokenId

AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
AnyCount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class JsonSchema(msgspec.Struct, frozen=True):
    """A named schema of the answer."""

    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """The form of the answer. `value` is TGI's, for the types json_object, json and regex: a schema, or an expression.

    Source: `chat_completion` of `huggingface_hub`, whose documentation sends json, and whose code json_object.
    """

    type: str
    json_schema: JsonSchema | None = None
    value: dict[str, Any] | str | None = None


class StructuredOutputs(msgspec.Struct, frozen=True):
    """vLLM's further forms of an answer."""

    json: dict[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: Any = None
    structural_tag: Any = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream tells besides the answer."""

    include_usage: bool | None = None


class CommonSampling(msgspec.Struct, frozen=True, kw_only=True):
    """How tokens are chosen, as many servers name it. Ranges are those of the records."""

    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] | None = None
    top_p: Fraction | None = None
    min_p: Fraction | None = None
    typical_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None


class VllmSampling(CommonSampling, frozen=True, kw_only=True):
    """The same with vLLM's names for more of it."""

    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: Choices | None = None
    best_of: Choices | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    length_penalty: Annotated[float, msgspec.Meta(ge=-100, le=100)] | None = None
    stop_token_ids: tuple[TokenId, ...] | None = None
    include_stop_str_in_output: bool | None = None


class SamplingBody(VllmSampling, frozen=True, kw_only=True):
    """Who is asked, and how tokens are chosen; null is as good as absent. Ranges are those of the records."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    stop: str | tuple[str, ...] | None = None
    logit_bias: dict[int, Annotated[float, msgspec.Meta(ge=-100, le=100)]] | None = None

    # vLLM's names, which its users send in `extra_body`.
    min_tokens: AnyCount | None = None
    ignore_eos: bool | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: int | None = None

    response_format: ResponseFormat | None = None

    user: str | None = None
    prompt_cache_key: str | None = None
