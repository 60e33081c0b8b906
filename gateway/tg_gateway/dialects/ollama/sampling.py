"""`options`, `format`, `think` and `logprobs` -> the fields of a request record."""

from typing import Any, Final

from tg_gateway.dialects import FoundModel
from tg_gateway.dialects.ollama.bodies import AnswerBody, Options
from tg_schema import Sampling
from tg_schema.errors import BadRequest
from tg_schema.text_completion import Effort, Reasoning

_EFFORTS: Final[dict[str, Effort]] = {"low": "low", "medium": "medium", "high": "high"}


def read_sampling(body: AnswerBody) -> Sampling | None:
    """How tokens are chosen; None if nothing is said about it.

    Raises:
        BadRequest: a stop string is empty.
    """
    options = body.options or Options()
    stop = (options.stop,) if isinstance(options.stop, str) else options.stop or ()
    if "" in stop:
        raise BadRequest("options.stop: a stop string must not be empty")
    sampling = Sampling(
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=_whole(options.top_k),
        # In Ollama -1 and -2 stand for no limit.
        max_tokens=_whole(options.num_predict) if (options.num_predict or 0) > 0 else None,
        stop=stop,
        seed=_whole(options.seed),
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        min_p=options.min_p,
        typical_p=options.typical_p,
        repetition_penalty=options.repeat_penalty,
    )
    return None if sampling == Sampling() else sampling


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)


def read_form(body: AnswerBody) -> dict[str, Any]:
    """The record's fields for the form of the answer: `response_format` or `schema`.

    Raises:
        BadRequest: it is neither "json" nor a schema.
    """
    form = body.format
    if isinstance(form, dict):
        return {"schema": form}
    if form in {None, ""}:
        return {}
    if form != "json":
        raise BadRequest('format must be "json" or a JSON schema')
    return {"response_format": "json"}


def read_reasoning(body: AnswerBody, found: FoundModel) -> Reasoning | None:
    """How much to think. No thinking is what a model that does not reason has anyway."""
    if body.think is False:
        return Reasoning("none") if "reasoning" in found.features else None
    if body.think is True:
        return Reasoning("medium")
    return Reasoning(_EFFORTS[body.think]) if body.think else None
