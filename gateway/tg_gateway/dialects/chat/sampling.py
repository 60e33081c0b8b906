"""Fields that chats and completions share -> the sampling and the form of an answer in a request record."""

from typing import Any, Final

from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat.sampling_body import JsonSchema, ResponseFormat, SamplingBody, StructuredOutputs
from tg_schema import Sampling
from tg_schema.sampling import MAX_CHOICES

_OBJECTS: Final = frozenset({"json", "json_object"})
"""Types of an answer in JSON: TGI's name, and OpenAI's."""
_FORMATS: Final = _OBJECTS | {"text", "json_schema", "regex"}


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
    if body.stream_options is not None and not body.stream:
        raise InvalidParameter("stream_options: send it with stream = true alone", "stream_options")
    if (body.best_of or MAX_CHOICES) < (body.n or 1):
        raise InvalidParameter("best_of must not be less than n", "best_of")
    stop = (body.stop,) if isinstance(body.stop, str) else body.stop or ()
    if "" in stop:
        raise InvalidParameter("stop: a stop string must not be empty", "stop")
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
    outputs = body.structured_outputs or StructuredOutputs()
    if outputs.grammar is not None or outputs.structural_tag is not None:
        sentence = "structured_outputs: send json, regex or choice"
        raise InvalidParameter(sentence, "structured_outputs", "unsupported_value")
    form = body.response_format or ResponseFormat("text")
    if form.type not in _FORMATS:
        sentence = f"response_format.type must be one of {', '.join(sorted(_FORMATS))}"
        raise InvalidParameter(sentence, "response_format.type", "invalid_value")
    schema, regex = _read_schema(form), _read_regex(form)
    for name, ours, theirs in (("json", outputs.json, schema), ("regex", outputs.regex, regex)):
        if ours is not None and theirs is not None:
            sentence = f"structured_outputs.{name}: response_format has one too; send one of them"
            raise InvalidParameter(sentence, "structured_outputs")
    plain = form.type in _OBJECTS and schema is None
    named = (form.json_schema if form.type == "json_schema" else None) or JsonSchema()
    return {
        "response_format": "json" if plain else None,
        "schema": outputs.json if schema is None else schema,
        "schema_name": named.name,
        "schema_description": named.description,
        "schema_strict": bool(named.strict),
        "regex": outputs.regex if regex is None else regex,
        "choice": outputs.choice or (),
    }


def _read_regex(form: ResponseFormat) -> str | None:
    if form.type != "regex":
        return None
    if not isinstance(form.value, str) or not form.value:
        place = "response_format.value"
        raise InvalidParameter(f"{place} must be the text of a regular expression", place, "invalid_value")
    return form.value


def _read_schema(form: ResponseFormat) -> dict[str, Any] | None:
    if form.type in _OBJECTS:
        if isinstance(form.value, str):
            place = "response_format.value"
            raise InvalidParameter(f"{place} must be a JSON schema, which is an object", place, "invalid_value")
        return form.value
    if form.type != "json_schema":
        return None
    if form.json_schema is None or form.json_schema.schema is None:
        place = "response_format.json_schema.schema"
        raise InvalidParameter(f"{place} is missing", place, "missing_required_parameter")
    return form.json_schema.schema
