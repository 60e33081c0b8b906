"""TextCompletionRequest -> the body of TGI's `/generate_stream` and `/generate`, after its published description."""

from typing import Any

from tg_base.llm import set_fields
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest


def generation_parameters(request: TextCompletionRequest, sampling: Sampling, adapter: str | None) -> dict[str, Any]:
    """The `parameters` for a streamed answer to a raw prompt, with details. Absent fields have the server's defaults.

    Args:
        request: the request.
        sampling: the request's sampling, with the configuration's defaults.
        adapter: the id of one of the server's adapters; None = the model itself.

    Raises:
        BadRequest: this server has no such parameter; the message says which.
    """
    if sampling.presence_penalty is not None:
        raise BadRequest("presence_penalty: this server has none for raw prompts; leave it out")
    if (sampling.seed or 0) < 0:
        raise BadRequest("seed: this server takes none below 0; send another one")
    chosen = (sampling.temperature, sampling.top_p, sampling.top_k, sampling.typical_p)
    greedy = sampling.temperature == 0
    # The server refuses values without an effect, and a temperature of 0. By default it does not sample.
    return set_fields(
        do_sample=(not greedy and any(value is not None for value in chosen)) or None,
        temperature=sampling.temperature or None,
        top_p=None if greedy or sampling.top_p == 1 else sampling.top_p,
        top_k=None if greedy or (sampling.top_k or 0) < 1 else sampling.top_k,
        typical_p=None if greedy or sampling.typical_p == 1 else sampling.typical_p,
        repetition_penalty=sampling.repetition_penalty,
        frequency_penalty=sampling.frequency_penalty,
        max_new_tokens=sampling.max_tokens,
        stop=tuple(sampling.stop),
        seed=sampling.seed,
        truncate=request.max_prompt_tokens,
        top_n_tokens=sampling.logprobs or None,
        grammar=_grammar(request),
        adapter_id=adapter,
        details=True,
    )


def scoring_parameters(request: TextCompletionRequest, adapter: str | None) -> dict[str, Any]:
    """The parameters for an answer of a single token that also returns the tokens of the prompt."""
    return set_fields(
        max_new_tokens=1,
        truncate=request.max_prompt_tokens,
        adapter_id=adapter,
        details=True,
        decoder_input_details=True,
    )


def _grammar(request: TextCompletionRequest) -> dict[str, Any] | None:
    if request.schema is not None:
        return {"type": "json", "value": request.schema}
    return None if request.regex is None else {"type": "regex", "value": request.regex}
