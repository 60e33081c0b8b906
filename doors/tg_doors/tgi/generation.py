"""Inputs and parameters -> a request record: every parameter has its field there, or is refused by name."""

from collections.abc import Iterator
from typing import Any

from tg_doors.tgi.generation_parameters import (
    MAX_STOP_SEQUENCES,
    SEEDS,
    GenerateBody,
    GenerationParameters,
    Grammar,
    sign_seed,
)
from tg_gateway.dialects import FoundModel, list_unknown
from tg_schema import Sampling, TextCompletionRequest, decode
from tg_schema.errors import BadRequest

TGI_TEMPERATURE = 1.0
"""TGI's default temperature for sampling."""


def read_generation(
    inputs: str, parameters: GenerationParameters, found: FoundModel, *, streaming: bool
) -> TextCompletionRequest:
    """The request record of a generation.

    The inputs are the whole prompt where the model takes raw text. A model behind a chat API gets the texts as a user's
    message.

    Raises:
        BadRequest: the inputs are empty, or a parameter is senseless, or asks for what cannot be answered.
    """
    if not inputs:
        raise BadRequest("inputs must not be empty")
    _check(parameters, found, streaming=streaming)
    request = TextCompletionRequest(
        prompt=inputs,
        streaming=streaming,
        model=found.model,
        sampling=_read_sampling(parameters, found, streaming=streaming),
        raw=found.may_have("raw"),
        adapter=choose_adapter(parameters.adapter_id, found, "parameters.adapter_id"),
        max_prompt_tokens=parameters.truncate,
        **read_grammar(parameters.grammar),
    )
    found.check(request)
    return request


def read_grammar(grammar: Grammar | None) -> dict[str, Any]:
    """The record's fields for the form of an answer: `schema` and its name, or `regex`.

    Raises:
        BadRequest: the value does not fit its type.
    """
    if grammar is None:
        return {}
    value, name = grammar.value, None
    if grammar.type == "regex":
        if not isinstance(value, str) or not value:
            raise BadRequest("parameters.grammar.value must be the text of a regular expression")
        return {"regex": value}
    if grammar.type == "json_schema":
        value, name = (value.get("schema"), value.get("name")) if isinstance(value, dict) else (None, None)
    elif isinstance(value, str):
        value = decode(Any, value)
    if not isinstance(value, dict):
        place = "parameters.grammar.value" + (".schema" if grammar.type == "json_schema" else "")
        raise BadRequest(f"{place} must be a JSON schema, which is an object")
    return {"schema": value, "schema_name": name if isinstance(name, str) else None}


def _check(parameters: GenerationParameters, found: FoundModel, *, streaming: bool) -> None:
    stop, several = parameters.stop or (), parameters.answers > 1
    BadRequest.refuse(
        {
            f"parameters.stop may have {MAX_STOP_SEQUENCES} texts, none of them empty": (
                len(stop) > MAX_STOP_SEQUENCES or "" in stop
            ),
            "parameters.stop: here the stop string that ends an answer is a part of its text, and this model removes "
            "it; leave stop out, or ask at another door": stop and not found.may_have("keep_stop"),
            "parameters.truncate: this model takes no raw text; shorten the inputs, and leave it out": (
                parameters.truncate is not None and not found.may_have("raw")
            ),
            "parameters.best_of: several answers are the same without do_sample or temperature": (
                several and not parameters.samples
            ),
            "parameters.seed: with best_of each answer has a seed of its own; leave out one of them": (
                several and parameters.seed is not None
            ),
            "parameters.best_of cannot be streamed: which answer is the best is known at their end": (
                several and streaming
            ),
            "parameters.seed has 64 bits; send one below 2**64": (parameters.seed or 0) >= SEEDS,
            "parameters.decoder_input_details cannot be streamed; leave it out, or ask for a whole answer": (
                parameters.decoder_input_details and streaming
            ),
        }
    )


def _read_sampling(parameters: GenerationParameters, found: FoundModel, *, streaming: bool) -> Sampling:
    logprobs = _count_alternatives(parameters, found, streaming=streaming)
    temperature = TGI_TEMPERATURE if parameters.temperature is None else parameters.temperature
    return Sampling(
        # TGI chooses the most probable token by default; most providers sample.
        temperature=temperature if parameters.samples else 0.0,
        top_p=parameters.top_p,
        top_k=parameters.top_k,
        typical_p=parameters.typical_p,
        max_tokens=parameters.max_new_tokens,
        stop=parameters.stop or (),
        keep_stop=bool(parameters.stop),
        seed=None if parameters.seed is None else sign_seed(parameters.seed),
        frequency_penalty=parameters.frequency_penalty,
        repetition_penalty=parameters.repetition_penalty,
        logprobs=logprobs,
        # Ask for all answers: the best one is chosen here.
        n=parameters.answers,
        end_token=logprobs is not None and "end_token" in found.features,
        prompt_logprobs=0 if parameters.decoder_input_details else None,
    )


def _count_alternatives(parameters: GenerationParameters, found: FoundModel, *, streaming: bool) -> int | None:
    """How many alternatives of each token to request; None = no token data is needed, or none is available."""
    if parameters.top_n_tokens or parameters.answers > 1:
        return parameters.top_n_tokens or 0
    return 0 if (streaming or parameters.wants_details) and found.may_have("logprobs") else None


def choose_adapter(adapter: str | None, found: FoundModel, field: str) -> str | None:
    """The LoRA adapter: from the field, or else from the model's name. Raises: BadRequest, if they differ."""
    if adapter and found.adapter and adapter != found.adapter:
        raise BadRequest(f"{field}: the model's name has another adapter; send one of them")
    return adapter or found.adapter


def list_ignored(data: bytes, body: GenerateBody) -> Iterator[str]:
    """The names of the ignored fields: a watermark, which no model here makes, and unknown ones.

    Args:
        data: the JSON of `body`.
        body: the body.
    """
    yield from list_unknown(data, GenerateBody, parameters=GenerationParameters)
    if body.parameters is not None and body.parameters.watermark:
        yield "parameters.watermark"
