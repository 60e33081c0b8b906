"""The bytes of Gemini's REST API, written by hand after the public reference of `streamGenerateContent`."""

import json
from base64 import b64encode
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A message of the API; an unknown field is refused, as the real one does."""


class Blob(Strict, frozen=True):
    mime_type: Annotated[str, Meta(pattern="^image/")]
    data: Annotated[str, Meta(min_length=1)]


class File(Strict, frozen=True):
    mime_type: Annotated[str, Meta(pattern="^image/")]
    file_uri: Annotated[str, Meta(pattern="^(https|gs)://")]


class Call(Strict, frozen=True):
    name: str
    args: dict[str, Any]
    id: str | None = None


class Result(Strict, frozen=True):
    name: str
    response: dict[str, Any]
    id: str | None = None


class Part(Strict, frozen=True):
    text: str | None = None
    inline_data: Blob | None = None
    file_data: File | None = None
    function_call: Call | None = None
    function_response: Result | None = None
    thought_signature: Annotated[str, Meta(pattern="^[A-Za-z0-9_+/=-]+$")] | None = None


class Content(Strict, frozen=True):
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]
    role: Literal["user", "model"]


class System(Strict, frozen=True):
    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]


class Function(Strict, frozen=True):
    name: Annotated[str, Meta(pattern=r"^[a-zA-Z_][\w.:-]{0,63}$")]
    description: str
    parameters_json_schema: dict[str, Any] | None = None


class Functions(Strict, frozen=True):
    function_declarations: Annotated[tuple[Function, ...], Meta(min_length=1)]


class Calling(Strict, frozen=True):
    mode: Literal["AUTO", "ANY", "NONE", "VALIDATED"]
    allowed_function_names: tuple[str, ...] = ()


class ToolConfig(Strict, frozen=True):
    function_calling_config: Calling


class Thinking(Strict, frozen=True):
    include_thoughts: bool = False
    thinking_budget: int | None = None
    thinking_level: Literal["MINIMAL", "LOW", "MEDIUM", "HIGH"] | None = None


class Generation(Strict, frozen=True):
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=1)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop_sequences: Annotated[tuple[str, ...], Meta(max_length=5)] = ()
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, lt=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, lt=2)] | None = None
    response_logprobs: bool = False
    logprobs: Annotated[int, Meta(ge=1, le=20)] | None = None
    response_mime_type: Literal["text/plain", "application/json"] = "text/plain"
    response_json_schema: dict[str, Any] | None = None
    thinking_config: Thinking | None = None


class GenerateBody(Strict, frozen=True):
    """What the reference allows in a request, as far as we use it; anything else is refused with 400."""

    contents: Annotated[tuple[Content, ...], Meta(min_length=1)]
    system_instruction: System | None = None
    tools: tuple[Functions, ...] = ()
    tool_config: ToolConfig | None = None
    generation_config: Generation = Generation()

    @classmethod
    def checked(cls, body: bytes) -> "GenerateBody":
        """Read a request, or say what is wrong with it."""
        read = msgspec.json.decode(body, type=cls)
        for wrong in (_wrong_parts(read), _wrong_calls(read), _wrong_config(read)):
            if wrong:
                raise msgspec.ValidationError(wrong)
        return read


class CountBody(Strict, frozen=True):
    """A request for a count of tokens at Google AI Studio."""

    generate_content_request: dict[str, Any]


def _wrong_parts(body: GenerateBody) -> str | None:
    for content in body.contents:
        for part in content.parts:
            shown = (part.text, part.inline_data, part.file_data, part.function_call, part.function_response)
            if sum(one is not None for one in shown) != 1:
                return "contents.parts: oneof field 'data' is not set, or already set"
    return None


def _wrong_calls(body: GenerateBody) -> str | None:
    asked: list[str] = []
    for content in body.contents:
        answered = [part.function_response.name for part in content.parts if part.function_response]
        if answered != asked:
            return "the number of function response parts must equal the number of function call parts"
        calls = [part for part in content.parts if part.function_call]
        if calls and content.role != "model":
            return "function calls can only be in a turn of the model"
        if calls and calls[0].thought_signature is None:
            return "Function call is missing a thought_signature in functionCall parts."
        for part in calls:
            if part.function_call and part.thought_signature not in {
                None,
                UNSIGNED,
                sign_call(part.function_call.name),
            }:
                return "Corrupted thought signature."
        asked = [part.function_call.name for part in calls if part.function_call]
    return None


def _wrong_config(body: GenerateBody) -> str | None:
    config = body.generation_config
    if config.response_json_schema is not None and config.response_mime_type != "application/json":
        return "response_schema is only allowed with the mime type application/json"
    if config.logprobs is not None and not config.response_logprobs:
        return "logprobs may only be set with responseLogprobs"
    calling = body.tool_config and body.tool_config.function_calling_config
    if calling and calling.allowed_function_names and calling.mode not in {"ANY", "VALIDATED"}:
        return "Allowed function names can only be set when the mode is ANY or VALIDATED."
    thinking = config.thinking_config
    if thinking and thinking.thinking_budget is not None and thinking.thinking_level is not None:
        return "You can only set only one of thinking budget and thinking level."
    if body.tool_config is not None and not body.tools:
        return "Function calling config is set without function_declarations."
    return None


UNSIGNED = "skip_thought_signature_validator"
"""What the reference allows in place of a signature that is not known."""


def sign_call(name: str) -> str:
    """This API's signature of a call."""
    return b64encode(f"thought about {name}".encode()).decode()


def response(**fields: Any) -> bytes:
    """One response of a stream; Google ends its lines with CR LF."""
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\r\n\r\n"


def candidate(model: str, *parts: dict[str, Any], finish: str | None = None, **fields: Any) -> bytes:
    """A piece of an answer."""
    said: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        said["finishReason"] = finish
    return response(candidates=[said], modelVersion=f"{model}-001", responseId="r1", **fields)


def error_body(code: int, status: str, *details: dict[str, Any], message: str = "no") -> dict[str, Any]:
    """What is said of a failure, in a body and in a stream."""
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}
