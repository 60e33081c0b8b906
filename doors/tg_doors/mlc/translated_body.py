"""A body as MLC-LLM's clients send it -> the same in OpenAI's fields, those of vLLM included."""

from typing import Any

import msgspec

from tg_doors.mlc.writers import write_arguments
from tg_gateway.dialects import InvalidParameter
from tg_gateway.dialects.chat import decode_body
from tg_schema import decode, encode
from tg_schema.errors import BadRequest


class _ResponseFormat(msgspec.Struct, frozen=True):
    """The schema of `json_object` is JSON text."""

    type: str
    schema: str | dict[str, Any] | None = None


class _DebugConfig(msgspec.Struct, frozen=True):
    ignore_eos: bool | None = None


class _Suffixed(msgspec.Struct, frozen=True):
    suffix: str | None = None


class _Body(msgspec.Struct, frozen=True):
    response_format: _ResponseFormat | None = None
    debug_config: _DebugConfig | None = None


def translate_body(data: bytes) -> bytes:
    """The body in OpenAI's form: the schema as an object, arguments of calls as text, `ignore_eos` in its place.

    Other fields of `debug_config` stay there, and are listed as ignored, since no model here has them.

    Raises:
        InvalidParameter: it is no JSON object, or one of these fields is wrong.
    """
    try:
        fields: dict[str, Any] = dict(decode(dict[str, msgspec.Raw], data))
        # Texts within the fields are not read here.
        data.decode()
    except BadRequest as error:
        raise InvalidParameter(error.message, "") from None
    except UnicodeDecodeError:
        raise InvalidParameter("not valid JSON: the text is not UTF-8", "") from None
    body = decode_body(_Body, data)
    form, debug = body.response_format, body.debug_config
    if form is not None and form.schema is not None:
        if form.type != "json_object":
            raise InvalidParameter(
                "response_format.schema: send it with the type json_object", "response_format.schema"
            )
        fields["response_format"] = {"type": form.type, "value": _read_schema(form.schema)}
    if debug is None:
        # null, as MLC's own client sends it, asks for nothing that could be ignored.
        fields.pop("debug_config", None)
    elif debug.ignore_eos is not None:
        given = decode(dict[str, msgspec.Raw], bytes(fields.pop("debug_config")))
        fields.setdefault("ignore_eos", given.pop("ignore_eos"))
        fields |= {"debug_config": given} if given else {}
    # Few conversations have calls; do not parse long ones without.
    if b'"tool_calls"' in data and "messages" in fields:
        fields["messages"] = msgspec.Raw(write_arguments(bytes(fields["messages"])))
    return encode(fields)


def take_suffix(data: bytes) -> tuple[bytes, str]:
    """The body of a completion without `suffix`, and the suffix: at MLC it follows the answer, unseen by the model.

    Args:
        data: the JSON of an object.

    Raises:
        InvalidParameter: it is no text.
    """
    fields: dict[str, Any] = dict(decode(dict[str, msgspec.Raw], data))
    suffix = decode_body(_Suffixed, data).suffix
    fields.pop("suffix", None)
    return encode(fields), suffix or ""


def _read_schema(schema: str | dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema, dict):
        return schema
    try:
        return decode(dict[str, Any], schema)
    except BadRequest:
        sentence = "response_format.schema must be a JSON schema, as text"
        raise InvalidParameter(sentence, "response_format.schema", "invalid_value") from None
