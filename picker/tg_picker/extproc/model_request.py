"""Request body -> picker: the model, the beginning of the prompt, and whether the answer is streamed.

One reader is enough for OpenAI's chats, completions and Responses and for Anthropic's Messages, because their fields
for these do not contradict each other. Nothing else of the body is parsed.
"""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from tg_picker.pools import Prompt, PromptFields, read_prompt
from tg_schema.errors import BadRequest

_NOT_JSON = "the body is not a JSON object; send one with the field `model`"
_NO_MODEL = "the body has no `model`; name the model as a string"


class ModelRequest(Struct, frozen=True):
    """The facts about a request that a picker needs.

    Attributes:
        model: the model as the client names it.
        prompt: the text that the model reads.
        max_tokens: the longest answer that the request allows; None = it sets no limit.
        streamed: whether the answer is requested token by token; without the field, none of the three APIs streams.
    """

    model: str
    prompt: Prompt
    max_tokens: int | None = None
    streamed: bool = False


_ABSENT = Raw()


class _Body(PromptFields):
    """The fields that are read."""

    model: str | UnsetType = UNSET
    max_tokens: Raw = _ABSENT
    max_completion_tokens: Raw = _ABSENT
    max_output_tokens: Raw = _ABSENT
    stream: Raw = _ABSENT


_DECODER = msgspec.json.Decoder(_Body)
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_CAPS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


def read_model_request(body: bytes) -> ModelRequest:
    """Read a body.

    Raises:
        BadRequest: it is not a JSON object, or names no model.
    """
    try:
        found = _DECODER.decode(body)
    except msgspec.ValidationError:
        is_object = body.lstrip()[:1] == b"{"
        raise BadRequest(_NO_MODEL if is_object else _NOT_JSON) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest(_NOT_JSON) from None
    if not found.model:
        raise BadRequest(_NO_MODEL)
    streamed = bytes(found.stream) == b"true"
    return ModelRequest(found.model, read_prompt(found), _cap(found), streamed)


def rename_model(body: bytes, model: str) -> bytes:
    """The same body with another `model`. The bytes of all other values are unchanged.

    Raises:
        BadRequest: the body is not a JSON object.
    """
    try:
        fields = _FIELDS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest(_NOT_JSON) from None
    fields["model"] = Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)


def _cap(found: _Body) -> int | None:
    for name in _CAPS:
        # Ignore a limit of the wrong type: the server knows its API and refuses it.
        text = bytes(getattr(found, name))
        if text.isdigit() and len(text) < 10:
            return int(text)
    return None
