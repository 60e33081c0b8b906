"""TextCompletionRequest -> the same, validated: the invariants that every provider relies on."""

import msgspec

from tg_schema import Message, Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest

_CHOICES = {None, "", "auto", "none"}


def check_completion(request: TextCompletionRequest) -> None:
    """Check the fields of a request against each other, and the ranges of its sampling.

    There is a prompt or a message; an image has either data or a URL; only the assistant calls tools; a result names
    its call; a forced tool exists. Ranges are checked at decoding too, but not in requests that this process creates.

    Raises:
        BadRequest: the message names the field and what to do.
    """
    if not request.turns:
        raise BadRequest("prompt is missing: send a JSON object with `prompt` (text) or `messages`")
    if request.response_format not in {None, "text", "json"}:
        raise BadRequest('response_format must be "text" or "json"')
    if request.sampling is not None:
        _check_sampling(request.sampling)
    for number, turn in enumerate(request.messages):
        _check_turn(f"messages[{number}]", turn)
    names = [tool.name for tool in request.tools]
    if len(set(names)) < len(names) or "" in names:
        raise BadRequest("tools: each must have a name of its own")
    if request.tool_choice not in {*_CHOICES, *(["required", *names] if names else [])}:
        raise BadRequest(
            'tool_choice must be "auto", "none", "required" (of some tools), or the name of one of the tools'
        )


def _check_sampling(sampling: Sampling) -> None:
    try:
        msgspec.convert({"sampling": msgspec.to_builtins(sampling)}, TextCompletionRequest)
    except msgspec.ValidationError as error:
        raise BadRequest(f"wrong field: {error}") from None


def _check_turn(place: str, turn: Message) -> None:
    if any((image.data is None) == (image.url is None) for image in turn.images):
        raise BadRequest(f"{place}: an image must have either `data` (base64) or `url`")
    if turn.tool_calls and turn.role != "assistant":
        raise BadRequest(f"{place}: tool_calls belong to a turn of the assistant")
    if turn.role == "tool" and not turn.tool_call_id:
        raise BadRequest(f"{place}: a turn of a tool must say which call it answers, as tool_call_id")
