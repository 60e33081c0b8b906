"""MLC-LLM's REST API over HTTP: OpenAI's dialect answers, in MLC's style; bodies and errors are translated."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tg_doors.mlc.failures import Validation, encode_failure, refuse
from tg_doors.mlc.writers import LateTextWriter, ParsedCallsWriter, ParsedChat, SpelledCallsWriter, write_arguments
from tg_gateway.dialects import Answer, Ask, Batch, Call, Description, InvalidParameter, Mount, Writer
from tg_gateway.dialects.chat import AnswerStyle, ChatCompletion, decode_body
from tg_gateway.dialects.embeddings import EMBEDDINGS
from tg_gateway.dialects.openai import OpenAi
from tg_schema import TextCompletionRequest, TextCompletionResponse, TgError, decode, encode, try_decode
from tg_schema.errors import BadRequest

STYLE: Final = AnswerStyle(
    owner="MLC-LLM",
    complete=True,
    named_by_user=True,
    model_required=False,
    encode_failure=encode_failure,
)


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


def translate_body(data: bytes, without: str = "") -> bytes:
    """The body in OpenAI's form: the schema as an object, arguments of calls as text, `ignore_eos` in its place.

    Other fields of `debug_config` stay there, and are listed as ignored, since no model here has them.

    Args:
        data: the JSON of the body.
        without: a field that is left out.

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
    fields.pop(without, None)
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


def _read_schema(schema: str | dict[str, Any]) -> dict[str, Any]:
    read = schema if isinstance(schema, dict) else try_decode(dict[str, Any], schema)
    if read is None:
        raise InvalidParameter(
            "response_format.schema must be a JSON schema, as text", "response_format.schema", "invalid_value"
        )
    return read


def _describe(theirs: Description) -> Description:
    """Chunks have MLC's own names in places, so events are not described; no model need be named."""
    required = tuple(name for name in theirs.required if name != "model")
    answer = ParsedChat if theirs.answer is ChatCompletion else theirs.answer
    return replace(theirs, group="MLC-LLM", failure=(str, Validation), required=required, event=None, answer=answer)


class MlcLlm(OpenAi):
    """Models, chats, completions and embeddings, as the clients of `mlc_llm serve` ask for them."""

    descriptions: ClassVar[Mapping[str, Description]] = {
        operation: _describe(theirs)
        for operation, theirs in (*OpenAi.descriptions.items(), ("embed", EMBEDDINGS.descriptions["embed"]))
    }

    @override
    def parse(self, call: Call) -> Ask | Answer:
        if call.operation in {"list-models", "show-model"}:
            return super().parse(call)
        # MLC repeats a completion's suffix after the answer, unseen by the model.
        own, data = "suffix" if call.operation == "completion" else "", call.body
        call.body = translate_body(data, own)
        if call.operation == "embed":
            return EMBEDDINGS.parse(call)
        suffix = decode_body(_Suffixed, data).suffix if own else None
        asked = super().parse(call)
        if not isinstance(asked, Ask):
            return asked
        writer = _choose_writer(asked, suffix or "")
        if asked.streaming:
            # The clients in MLC's documentation treat each HTTP chunk as one event, and every event as JSON.
            writer.events_apart, writer.keep_alive = True, b""
        return replace(asked, writer=writer)

    @override
    def refuse(self, error: TgError, status: int, call: Call) -> Answer:
        return refuse(error, status, known_path=bool(call.operation))


def _choose_writer(asked: Ask, suffix: str) -> Writer[TextCompletionResponse]:
    if isinstance(asked.request, Batch):
        choices = len(asked.request.requests) * asked.request.answers
        return LateTextWriter(asked.writer, choices, suffix) if suffix else asked.writer
    if not asked.streaming:
        return ParsedCallsWriter(asked.writer)
    request: TextCompletionRequest = asked.request
    return SpelledCallsWriter(asked.writer, request.answers) if request.tools else asked.writer


MLC: Final = MlcLlm(STYLE)

MOUNTS: Final[tuple[Mount, ...]] = (
    Mount("GET", "/mlc/v1/models", MLC, "list-models"),
    Mount("GET", "/mlc/v1/models/{model}", MLC, "show-model"),
    Mount("POST", "/mlc/v1/chat/completions", MLC, "chat-completion", large=True),
    Mount("POST", "/mlc/v1/completions", MLC, "completion", large=True),
    Mount("POST", "/mlc/v1/embeddings", MLC, "embed", large=True),
)
"""The address for MLC-LLM's clients: in place of its server's base URL they have `http://HOST:PORT/mlc/v1`."""
