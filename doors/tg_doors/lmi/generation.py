"""A text and its parameters -> a request record: each parameter has its field there, or is listed as ignored."""

from collections.abc import Iterator, Sequence

import msgspec

from tg_doors.lmi.parameters import LmiParameters, keep
from tg_doors.tgi import choose_adapter
from tg_gateway.dialects import FoundModel
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest
from tg_schema.features import Feature


def read_generation(
    text: str, parameters: LmiParameters, found: FoundModel, adapter: str | None, *, streaming: bool, tokens: bool
) -> TextCompletionRequest:
    """The request record of one text.

    The text is the whole prompt if the model takes raw text. A model behind a chat API gets the text as a user's
    message.

    Args:
        text: the text; if there are several, one may be empty, which the processor refuses.
        parameters: how to generate.
        found: the model.
        adapter: the LoRA adapter; None = the one that the model's name implies.
        streaming: whether the answer is streamed.
        tokens: whether the answer lists its tokens.

    Raises:
        BadRequest: a parameter is senseless, or asks for what cannot be answered.
    """
    _check(parameters, found, streaming=streaming)
    request = TextCompletionRequest(
        prompt=text,
        streaming=streaming,
        model=found.model,
        sampling=_read_sampling(parameters, found, shows_tokens=tokens),
        raw=found.may_have("raw"),
        adapter=choose_adapter(adapter, found, "adapters"),
        max_prompt_tokens=parameters.truncate,
    )
    found.check(request)
    return request


def read_generations(
    texts: Sequence[str],
    parameters: LmiParameters,
    found: FoundModel,
    adapters: Sequence[str | None],
    *,
    streaming: bool,
) -> tuple[TextCompletionRequest, ...]:
    """The request records of a list of texts, each with its adapter; the parameters, which may be long, are read once.

    Raises:
        BadRequest: as `read_generation`.
    """
    first = read_generation(texts[0], parameters, found, adapters[0], streaming=streaming, tokens=False)
    requests = [first]
    for text, adapter in zip(texts[1:], adapters[1:], strict=True):
        request = msgspec.structs.replace(first, prompt=text, adapter=choose_adapter(adapter, found, "adapters"))
        found.check(request)
        requests.append(request)
    return tuple(requests)


def list_ignored(parameters: LmiParameters, found: FoundModel, *, alternatives: bool) -> Iterator[str]:
    """The parameters that have no effect on the answer, although a client may expect one.

    Args:
        parameters: the parameters of the request.
        found: the model.
        alternatives: whether the answer has the most probable tokens at each place.
    """
    asked = {
        "logprobs": 0 if alternatives else parameters.logprobs,
        "top_n_tokens": 0 if alternatives else parameters.top_n_tokens,
        "num_beams": keep(parameters.num_beams, 1),
        "early_stopping": parameters.early_stopping,
        "length_penalty": None if _takes_length(found) else keep(parameters.length_penalty, 1),
        "skip_special_tokens": parameters.skip_special_tokens is False,
        "spaces_between_special_tokens": parameters.spaces_between_special_tokens is False,
        "bad_sequences": parameters.bad_sequences,
        "stop": parameters.stop is True,
    }
    yield from (f"parameters.{name}" for name, value in asked.items() if value)


def _check(parameters: LmiParameters, found: FoundModel, *, streaming: bool) -> None:
    several, name = parameters.generated > 1, parameters.several_name
    BadRequest.refuse(
        {
            "parameters.stop_sequences: none of them may be empty": "" in parameters.stops,
            "parameters.truncate: this model takes no raw text; shorten the inputs, and leave it out": (
                parameters.truncate is not None and not found.may_have("raw")
            ),
            "parameters.best_of must be at least n: the model generates best_of answers, and n are returned": (
                parameters.best_of is not None and parameters.best_of < (parameters.n or 1)
            ),
            f"parameters.{name}: several answers are the same without sampling; set do_sample, or {name} to 1": (
                several and not parameters.samples
            ),
            f"parameters.{name} cannot be streamed: which answer is the best is known at their end": (
                several and streaming
            ),
        }
    )


def _read_sampling(parameters: LmiParameters, found: FoundModel, *, shows_tokens: bool) -> Sampling:
    needed = bool(parameters.alternatives) or parameters.generated > 1
    logprobs = parameters.alternatives if needed or (shows_tokens and found.may_have("logprobs")) else None
    temperature = 1.0 if parameters.temperature is None else parameters.temperature
    return Sampling(
        temperature=temperature if parameters.samples else 0.0,
        top_p=keep(parameters.top_p, 0) if _chooses(found, "top_p") else keep(parameters.top_p, 0, 1),
        top_k=_read_top_k(parameters) if _chooses(found, "top_k") else keep(parameters.top_k, 0, -1),
        min_p=keep(parameters.min_p, 0),
        typical_p=keep(parameters.typical_p, 0, 1),
        max_tokens=parameters.max_tokens,
        min_tokens=parameters.min_length,
        stop=parameters.stops,
        keep_stop=bool((parameters.stops or parameters.stop_token_ids) and parameters.include_stop_str_in_output),
        stop_ids=parameters.stop_token_ids or (),
        seed=parameters.seed,
        presence_penalty=keep(parameters.presence_penalty, 0),
        frequency_penalty=keep(parameters.frequency_penalty, 0),
        repetition_penalty=keep(parameters.repetition_penalty, 1),
        length_penalty=keep(parameters.length_penalty, 1) if _takes_length(found) else None,
        ignore_eos=bool(parameters.ignore_eos_token),
        logprobs=logprobs,
        # Ask for all answers: the best one is chosen here.
        n=parameters.generated,
        end_token=logprobs is not None and "end_token" in found.features,
        prompt_logprobs=(parameters.prompt_logprobs or 0) if parameters.wants_prefill else None,
    )


def _chooses(found: FoundModel, feature: Feature) -> bool:
    """Whether the model may limit the choice of tokens by a default of its own, so that 1 and 0 do have an effect.

    Leave it out for a chat API that has both: some refuse `top_p` together with a temperature.
    """
    return "raw" in found.features and feature in found.features


def _read_top_k(parameters: LmiParameters) -> int | None:
    """The record's `top_k`, where 0 = all tokens; vLLM writes -1 for that."""
    return None if parameters.top_k is None else max(parameters.top_k, 0)


def _takes_length(found: FoundModel) -> bool:
    """Only beam search has a length penalty, so it is left out for all others."""
    return "length_penalty" in found.features
