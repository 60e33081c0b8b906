"""Fields that the bodies of chats and of completions share -> the sampling and the form of an answer in a record.

The fields are those of OpenAI's API reference, and vLLM's further ones.
"""

from typing import Annotated, Any

import msgspec

from tg_gateway.dialects import InvalidParameter
from tg_schema import Sampling
from tg_schema.sampling import MAX_CHOICES, Choices, Fraction, Penalty, TokenId

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
    """The parts of a stream besides the answer that the client asked for."""

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
    """The same with vLLM's names for further parameters."""

    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: Choices | None = None
    best_of: Choices | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    length_penalty: Annotated[float, msgspec.Meta(ge=-100, le=100)] | None = None
    stop_token_ids: tuple[TokenId, ...] | None = None
    include_stop_str_in_output: bool | None = None


class SamplingBody(VllmSampling, frozen=True, kw_only=True):
    """Which model is asked, and how tokens are chosen; null counts as absent. Ranges are those of the records."""

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


def read_sampling(
    body: SamplingBody, *, max_tokens: int | None, logprobs: int | None, prompt_logprobs: int | None = None
) -> Sampling | None:
    """How tokens are chosen; None if the request does not say.

    Args:
        body: the request's.
        max_tokens: the most tokens of an answer.
        logprobs: alternatives to report for each token; None = no token data.
        prompt_logprobs: the same for the prompt's tokens.

    Raises:
        InvalidParameter: a stop string is empty, or fields contradict each other.
    """
    stop = (body.stop,) if isinstance(body.stop, str) else body.stop or ()
    InvalidParameter.refuse_first(
        (
            body.stream_options is not None and not body.stream,
            "stream_options",
            None,
            "stream_options: send it with stream = true alone",
        ),
        ((body.best_of or MAX_CHOICES) < (body.n or 1), "best_of", None, "best_of must not be less than n"),
        ("" in stop, "stop", None, "stop: a stop string must not be empty"),
    )
    sampling = Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        max_tokens=max_tokens,
        stop=stop,
        seed=body.seed,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logprobs=logprobs,
        n=body.n,
        best_of=body.best_of,
        min_p=body.min_p,
        typical_p=body.typical_p,
        repetition_penalty=body.repetition_penalty,
        length_penalty=body.length_penalty,
        logit_bias=body.logit_bias or None,
        min_tokens=body.min_tokens,
        ignore_eos=bool(body.ignore_eos),
        stop_ids=body.stop_token_ids or (),
        keep_stop=bool(body.include_stop_str_in_output),
        prompt_logprobs=prompt_logprobs,
    )
    # Without any such field leave `sampling` out, so that a plain peer can be asked.
    return None if sampling == Sampling() else sampling


def read_form(body: SamplingBody) -> dict[str, Any]:
    """The record's fields for the form of the answer: `response_format`, `schema`, its labels, `regex` and `choice`.

    Raises:
        InvalidParameter: a record cannot express the form, or there are two forms.
    """
    ours, form = body.structured_outputs or StructuredOutputs(), body.response_format or ResponseFormat("text")
    if ours.grammar is not None or ours.structural_tag is not None:
        raise InvalidParameter(
            "structured_outputs: send json, regex or choice", "structured_outputs", "unsupported_value"
        )
    theirs = _read_format(form)
    for name in ("json", "regex"):
        if getattr(ours, name) is not None and getattr(theirs, name) is not None:
            raise InvalidParameter(
                f"structured_outputs.{name}: response_format has one too; send one of them", "structured_outputs"
            )
    named = (form.json_schema if form.type == "json_schema" else None) or JsonSchema()
    return {
        "response_format": "json" if form.type in {"json", "json_object"} and theirs.json is None else None,
        "schema": ours.json if theirs.json is None else theirs.json,
        "schema_name": named.name,
        "schema_description": named.description,
        "schema_strict": bool(named.strict),
        "regex": ours.regex if theirs.regex is None else theirs.regex,
        "choice": ours.choice or (),
    }


def _read_format(form: ResponseFormat) -> StructuredOutputs:
    """The schema or the expression of `response_format`, in vLLM's form."""
    match form.type, form.value:
        case "text", _:
            return StructuredOutputs()
        case "json" | "json_object", None | dict() as schema:
            return StructuredOutputs(json=schema)
        case "json" | "json_object", _:
            raise _refuse_format("value", "must be a JSON schema, which is an object")
        case "regex", str() as regex if regex:
            return StructuredOutputs(regex=regex)
        case "regex", _:
            raise _refuse_format("value", "must be the text of a regular expression")
        case "json_schema", _:
            if form.json_schema is None or form.json_schema.schema is None:
                raise _refuse_format("json_schema.schema", "is missing", "missing_required_parameter")
            return StructuredOutputs(json=form.json_schema.schema)
        case _:
            raise _refuse_format("type", "must be one of json, json_object, json_schema, regex, text")


def _refuse_format(field: str, words: str, code: str = "invalid_value") -> InvalidParameter:
    return InvalidParameter(f"response_format.{field} {words}", f"response_format.{field}", code)
