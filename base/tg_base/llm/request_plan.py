"""TextCompletionRequest -> the provider's requests: checks it, and plans how the base supplies missing features.

`check_completion` holds the invariants that every provider relies on. A `GenerationPlan` lists what the base does for
the provider.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

import msgspec

from tg_schema import Message, Sampling, TextCompletionRequest
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest
from tg_schema.features import Feature

MAX_STOPS = 64
"""Most stop strings, and most stop ids, of a request; a provider may allow fewer."""

MAX_STOP_CHARACTERS = 256
"""The most characters of a stop string: each piece of an answer is searched for that many beginnings."""

MAX_TEXTS = 2048
"""Most texts of one request to embed (OpenAI's limit)."""

EMULATED_FEATURES: Final[frozenset[Feature]] = frozenset({"n", "strict_tools", "allowed_tools", "parallel_tool_calls"})
"""Features that the base supplies for a provider that lacks them."""

_SEED_COUNT = 2**64
_form_values: Final = attrgetter("schema", "response_format", "regex", "choice")
_NO_FORM: Final = _form_values(TextCompletionRequest())
_CHOICES = {None, "", "auto", "none"}


class GenerationPlan(msgspec.Struct, frozen=True):
    """How one request is answered.

    Attributes:
        requests: the requests to the provider, all sent at the same time.
        generated: the number of answers to generate: several to one request, or one to each of several.
        ranked: whether only the best of them are returned.
        single_call: whether calls after an answer's first one are dropped.
    """

    requests: tuple[TextCompletionRequest, ...]
    generated: int = 1
    ranked: bool = False
    single_call: bool = False

    @classmethod
    def of(cls, request: TextCompletionRequest, native: frozenset[Feature]) -> "GenerationPlan":
        """The plan of a request for a provider that has the features `native` itself."""
        single_call = request.parallel_tool_calls is False and "parallel_tool_calls" not in native
        if request.tools or request.allowed_tools or request.parallel_tool_calls is not None:
            request = _with_tools(request, native)
        sampling = request.sampling
        if sampling is None or (sampling.n or 1) == (sampling.best_of or 1) == 1:
            return cls((request,), single_call=single_call)
        ranks = "best_of" in native and (request.answers == 1 or "n" in native)
        ranked = "best_of" in sampling.features and not ranks
        if ranked:
            # The ranking needs log-probabilities, also where the client did not ask for any.
            sampling = msgspec.structs.replace(sampling, n=sampling.best_of, logprobs=sampling.logprobs or 0)
        if not ranks:
            sampling = msgspec.structs.replace(sampling, best_of=None)
        count = sampling.n or 1
        asked = (sampling,) if count == 1 or "n" in native else [_numbered(sampling, index) for index in range(count)]
        requests = tuple(msgspec.structs.replace(request, sampling=each) for each in asked)
        return cls(requests, generated=count, ranked=ranked, single_call=single_call)


def check_completion(request: TextCompletionRequest) -> None:
    """Check the fields of a request against each other, and the ranges of its sampling.

    There is a prompt or a message; an image has either data or a URL; only the assistant calls tools and thinks; a
    result names its call; forced and allowed tools exist; the answer has one form; of several answers there are no
    more to return than to generate. Ranges are checked at decoding too, but not in requests that this process creates.

    Raises:
        BadRequest: the message names the field and what to do.
    """
    if request.operation in _PROMPTLESS:
        _PROMPTLESS[request.operation](request)
        return
    if request.operation == "tokenize" and request.texts:
        return
    if request.scored or request.operation == "score":
        _check_scored(request)
    _check_prompt(request)
    if _form_values(request) != _NO_FORM:
        _check_form(request)
    if request.sampling is not None:
        _check_sampling(request.sampling)
        if request.streaming and (request.sampling.best_of or 1) > request.answers:
            raise BadRequest("best_of cannot be streamed: which answers are the best is known at their end")
    for number, turn in enumerate(request.messages):
        _check_turn(f"messages[{number}]", turn)
    if request.tools or request.allowed_tools or request.tool_choice not in _CHOICES:
        _check_tools(request)


def _check_prompt(request: TextCompletionRequest) -> None:
    if request.prompt_ids or request.raw:
        _check_raw_prompt(request)
    elif request.max_prompt_tokens is not None:
        raise BadRequest("max_prompt_tokens cuts a raw prompt, or prompt_ids; leave it out, or send one of them")
    elif not (request.prompt or request.turns):
        raise BadRequest("prompt is missing: send a JSON object with `prompt` (text) or `messages`")
    if request.echo and not (request.prompt or request.prompt_ids):
        raise BadRequest("echo needs the text of prompt, or prompt_ids")
    if request.suffix is not None and not request.prompt:
        raise BadRequest("suffix needs the text of prompt, which the answer follows")


def _check_form(request: TextCompletionRequest) -> None:
    forms = {
        "schema or response_format": request.schema is not None or request.response_format == "json",
        "regex": request.regex is not None,
        "choice": bool(request.choice),
    }
    prescribed = sum(forms.values())
    BadRequest.refuse(
        {
            'response_format must be "text" or "json"': request.response_format not in {None, "text", "json"},
            f"{', '.join(forms)}: an answer can have one form; leave out the others": prescribed > 1,
            "echo: an answer with a prescribed form cannot begin with the prompt; leave out one of them": (
                request.echo and prescribed
            ),
            "choice: each must be a text": "" in request.choice,
        }
    )


def _check_embedded(request: TextCompletionRequest) -> None:
    inputs = request.texts or request.id_lists
    BadRequest.refuse(
        {
            "texts is missing: a list of the texts to embed": not inputs,
            "id_lists replace texts; leave out one of them": request.texts and request.id_lists,
            f"texts and id_lists: at most {MAX_TEXTS} can be embedded at a time; ask several times": (
                len(inputs) > MAX_TEXTS
            ),
            "texts and id_lists: an empty text cannot be embedded; leave out what is empty": not all(inputs),
        }
    )


def _check_detokenized(request: TextCompletionRequest) -> None:
    BadRequest.refuse({"prompt_ids is missing: the token ids to turn into text": not request.prompt_ids})


def _check_adapter(request: TextCompletionRequest) -> None:
    loads = request.operation == "load-adapter"
    BadRequest.refuse(
        {
            "adapter is missing: the name of the LoRA adapter": not request.adapter,
            "adapter_path is missing: the file of the LoRA adapter": loads and not request.adapter_path,
        }
    )


def _check_scored(request: TextCompletionRequest) -> None:
    scores = request.operation == "score"
    asks_prompt = request.sampling is not None and request.sampling.prompt_logprobs is not None
    BadRequest.refuse(
        {
            'scored belongs to the operation "score"': request.scored and not scores,
            "scored is missing: the token ids to score after the prompt, or sampling.prompt_logprobs": (
                scores and not (request.scored or asks_prompt)
            ),
        }
    )


def _check_raw_prompt(request: TextCompletionRequest) -> None:
    BadRequest.refuse(
        {
            "tools need a conversation; leave out raw and prompt_ids, or tools": request.tools,
            "raw and prompt_ids are the whole prompt; leave out messages and system": (
                request.messages or request.system
            ),
            "prompt_ids replace prompt; leave out one of them": request.prompt_ids and request.prompt,
            "the prompt is empty; raw needs its text": not (request.prompt_ids or request.prompt),
        }
    )


def _check_tools(request: TextCompletionRequest) -> None:
    names = [tool.name for tool in request.tools]
    if len(set(names)) < len(names) or "" in names:
        raise BadRequest("tools: each must have a name of its own")
    allowed = set(request.allowed_tools)
    if not allowed <= set(names):
        raise BadRequest("allowed_tools: each must be the name of one of the tools")
    names = [name for name in names if not allowed or name in allowed]
    if request.tool_choice not in {*_CHOICES, *(["required", *names] if names else [])}:
        # Do not name the choices, whose names differ between APIs.
        reason = "no tool that may be called has this name" if names else "there is no tool to call"
        raise BadRequest(f"tool_choice: {reason}; send the tool, or leave the choice to the model")


def _check_sampling(sampling: Sampling) -> None:
    try:
        # msgspec checks ranges only where it decodes.
        msgspec.convert({"sampling": msgspec.structs.asdict(sampling)}, TextCompletionRequest)
    except msgspec.ValidationError as error:
        raise BadRequest(f"wrong field: {error}") from None
    stops_fit = all(0 < len(stop) <= MAX_STOP_CHARACTERS for stop in sampling.stop)
    BadRequest.refuse(
        {
            "sampling.best_of must be at least sampling.n: it counts the answers to choose from": (
                sampling.best_of is not None and sampling.best_of < (sampling.n or 1)
            ),
            f"sampling.stop may have {MAX_STOPS} texts of 1 to {MAX_STOP_CHARACTERS} characters": (
                len(sampling.stop) > MAX_STOPS or not stops_fit
            ),
            f"sampling.stop_ids may have {MAX_STOPS} ids": len(sampling.stop_ids) > MAX_STOPS,
            "sampling.min_tokens must not be above sampling.max_tokens": (
                sampling.max_tokens is not None and (sampling.min_tokens or 0) > sampling.max_tokens
            ),
            "sampling.end_token needs sampling.logprobs: without, an answer has no data of its tokens": (
                sampling.end_token and sampling.logprobs is None
            ),
            "sampling.logit_bias: the keys are token ids, which are not negative": (
                min(sampling.logit_bias or (0,)) < 0
            ),
        }
    )


def _check_turn(place: str, turn: Message) -> None:
    if any((image.data is None) == (image.url is None) for image in turn.images):
        raise BadRequest(f"{place}: an image must have either `data` (base64) or `url`")
    if turn.tool_calls and turn.role != "assistant":
        raise BadRequest(f"{place}: tool_calls belong to a turn of the assistant")
    if turn.role != "assistant" and any(isinstance(part, ReasoningPart) for part in turn.parts):
        raise BadRequest(f"{place}: thinking belongs to a turn of the assistant")
    if turn.role == "tool" and not turn.tool_call_id:
        raise BadRequest(f"{place}: a turn of a tool must say which call it answers, as tool_call_id")


_PROMPTLESS: dict[str | None, Callable[[TextCompletionRequest], None]] = {
    "embed": _check_embedded,
    "detokenize": _check_detokenized,
    "load-adapter": _check_adapter,
    "unload-adapter": _check_adapter,
}
"""The checks of the operations that have no prompt."""


def _numbered(sampling: Sampling, index: int) -> Sampling:
    """The sampling for one of several answers: each gets a seed of its own."""
    # Within a signed 64-bit number, as the record has it.
    seed = (
        None if sampling.seed is None else (sampling.seed + index + _SEED_COUNT // 2) % _SEED_COUNT - _SEED_COUNT // 2
    )
    return msgspec.structs.replace(sampling, n=None, seed=seed)


def _with_tools(request: TextCompletionRequest, native: frozenset[Feature]) -> TextCompletionRequest:
    """The request without the fields about tools that the provider does not know."""
    tools = request.tools
    if request.allowed_tools and "allowed_tools" not in native:
        allowed = frozenset(request.allowed_tools)
        tools = tuple(tool for tool in tools if tool.name in allowed)
        request = msgspec.structs.replace(request, tools=tools, allowed_tools=())
    if "strict_tools" not in native and any(tool.strict for tool in tools):
        tools = tuple(msgspec.structs.replace(tool, strict=False) for tool in tools)
        request = msgspec.structs.replace(request, tools=tools)
    if request.parallel_tool_calls is not None and "parallel_tool_calls" not in native:
        request = msgspec.structs.replace(request, parallel_tool_calls=None)
    return request
