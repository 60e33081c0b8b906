"""Every field of every door that is interpreted, by the kind of its value.

| kind | who interprets it |
|---|---|
| schema | the processor (`AnswerForm`), for the form of an answer; llama-cpp makes a grammar of it |
| strict tool, tool | the same for the arguments of calls; if it is not strict, only llama-cpp reads its schema |
| regex | llama-cpp makes a grammar of it; vLLM and TGI get it as it is |
| stop | the processor looks for it in each piece of an answer |
| number | each door's decoder, and the processor again |
| mask | LMTP's door and llama-cpp: a bias for each token |
| path | the router, and the catalogue of models |

A JSON path is found in a schema alone, as `$ref`. These kinds have no place:

- Templates: a client sends variables only. A template is its operator's, and a chat template its model's: `readers`.
- Globs: nothing has one. Models, groups, hosts and origins are compared as they are; "*" alone means all.
- Grammars: vLLM's `structured_outputs.grammar` and `structural_tag` are refused, and no other door has such a field.
- LMTP and LMI have no field for a schema, a tool or an expression; LMI's doors pass OpenAI's bodies on to OpenAI's.

`tg-pick` reads a model's name and numbers of bodies that it passes on: `readers`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from tests.openapi.described_gateway import MODEL

Kind = Literal["schema", "strict tool", "tool", "regex", "stop", "number", "mask", "path"]
_HOLE: Final = "<hole>"
NATIVE_SOCKET: Final = "api/v1/socket"
LMTP: Final = "lmtp"


class Place(NamedTuple):
    """One field.

    Attributes:
        kind: of its values.
        path: of the door, or with the field in it.
        body: JSON with a hole for the value; a GET has none.
        socket: whether it is sent as a message.
        text: whether the value is written as a text of JSON.
    """

    kind: Kind
    path: str
    body: Mapping[str, Any] | None = None
    socket: bool = False
    text: bool = False

    def fill(self, value: bytes) -> bytes:
        """The body, or the message, with the JSON of a value."""
        written = json.dumps(value.decode()).encode() if self.text else value
        data = json.dumps(self.body).encode().replace(json.dumps(_HOLE).encode(), written)
        return b"GENERATE " + data if self.path == LMTP else data

    def fill_path(self, value: str) -> str:
        """The path with a text in it."""
        return self.path.replace(_HOLE, value)


_NATIVE: Final = {"prompt": "q", "sampling": {"max_tokens": 4}}
_CHAT: Final = {"model": MODEL, "messages": [{"role": "user", "content": "q"}], "max_tokens": 4}
_TEXT: Final = {"model": MODEL, "prompt": "q", "max_tokens": 4}
_RESPONSE: Final = {"model": MODEL, "input": "q", "max_output_tokens": 4, "store": False}
_CREATE: Final = {"type": "response.create", **_RESPONSE}
_OLLAMA: Final = {"model": MODEL, "options": {"num_predict": 4}, "stream": False}
_TGI: Final = {"max_new_tokens": 4}
_GENERATE: Final = {"model": MODEL, "prompt": [72], "stream_id": 1, "max_tokens": 4}
_PARAMETERS: Final = {"name": "f", "parameters": _HOLE}
_CALL: Final = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": _HOLE}}}
_FUNCTION: Final = {"type": "function", "function": _PARAMETERS}
_STRICT: Final = {"type": "function", "function": {**_PARAMETERS, "strict": True}}
_FORM: Final = {"type": "json_schema", "json_schema": {"name": "s", "schema": _HOLE}}
_FORMAT: Final = {"format": {"type": "json_schema", "name": "s", "schema": _HOLE}}


def _asked(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"id": "1", "service": "text-completion", "flow": "default", "request": {**_NATIVE, **request}}


PLACES: Final[Mapping[str, Place]] = {
    "native": Place("schema", "api/v1/text-completion", {**_NATIVE, "schema": _HOLE}),
    "native, streamed": Place("schema", "api/v1/text-completion", {**_NATIVE, "schema": _HOLE, "streaming": True}),
    "native, a flow": Place(
        "schema", "api/v1/flow/default/service/text-completion", {**_NATIVE, "schema": _HOLE, "prompt": "p"}
    ),
    "native, a socket": Place("schema", NATIVE_SOCKET, _asked({"schema": _HOLE}), socket=True),
    "native, a strict tool": Place(
        "strict tool", "api/v1/text-completion", {**_NATIVE, "tools": [{**_PARAMETERS, "strict": True}]}
    ),
    "native, a forced tool": Place(
        "tool", "api/v1/text-completion", {**_NATIVE, "tools": [_PARAMETERS], "tool_choice": "required"}
    ),
    "native, a tool on a socket": Place(
        "strict tool", NATIVE_SOCKET, _asked({"tools": [{**_PARAMETERS, "strict": True}]}), socket=True
    ),
    "native, an expression": Place("regex", "api/v1/text-completion", {**_NATIVE, "regex": _HOLE}),
    "native, an expression on a socket": Place("regex", NATIVE_SOCKET, _asked({"regex": _HOLE}), socket=True),
    "native, a stop string": Place("stop", "api/v1/text-completion", {"prompt": "q", "sampling": {"stop": [_HOLE]}}),
    "native, a number": Place("number", "api/v1/text-completion", {"prompt": "q", "sampling": {"temperature": _HOLE}}),
    "native, a bias": Place(
        "number", "api/v1/text-completion", {"prompt": "q", "sampling": {"logit_bias": {"1": _HOLE}}}
    ),
    "native, a number on a socket": Place(
        "number", NATIVE_SOCKET, _asked({"sampling": {"seed": _HOLE, "max_tokens": 4}}), socket=True
    ),
    "native, a variable": Place("number", "api/v1/prompt", {"id": "question", "variables": {"question": _HOLE}}),
    "OpenAI": Place("schema", "v1/chat/completions", {**_CHAT, "response_format": _FORM}),
    "OpenAI, streamed": Place("schema", "v1/chat/completions", {**_CHAT, "response_format": _FORM, "stream": True}),
    "OpenAI, a strict tool": Place("strict tool", "v1/chat/completions", {**_CHAT, "tools": [_STRICT]}),
    "OpenAI, a forced tool": Place(
        "tool", "v1/chat/completions", {**_CHAT, "tools": [_FUNCTION], "tool_choice": "required"}
    ),
    "OpenAI, vLLM's schema": Place("schema", "v1/chat/completions", {**_CHAT, "structured_outputs": {"json": _HOLE}}),
    "OpenAI, vLLM's expression": Place(
        "regex", "v1/chat/completions", {**_CHAT, "structured_outputs": {"regex": _HOLE}}
    ),
    "OpenAI, TGI's expression": Place(
        "regex", "v1/chat/completions", {**_CHAT, "response_format": {"type": "regex", "value": _HOLE}}
    ),
    "OpenAI, a stop string": Place("stop", "v1/chat/completions", {**_CHAT, "stop": _HOLE}),
    "OpenAI, a number": Place("number", "v1/chat/completions", {**_CHAT, "top_p": _HOLE}),
    "completions": Place("schema", "v1/completions", {**_TEXT, "response_format": _FORM}),
    "completions, vLLM's expression": Place(
        "regex", "v1/completions", {**_TEXT, "structured_outputs": {"regex": _HOLE}}
    ),
    "completions, a stop string": Place("stop", "v1/completions", {**_TEXT, "stop": ["x", _HOLE]}),
    "completions, a number": Place("number", "v1/completions", {**_TEXT, "logprobs": _HOLE}),
    "Responses": Place("schema", "v1/responses", {**_RESPONSE, "text": _FORMAT}),
    "Responses, a socket": Place("schema", "v1/responses", {**_CREATE, "text": _FORMAT}, socket=True),
    "Responses, a strict tool": Place(
        "strict tool", "v1/responses", {**_RESPONSE, "tools": [{"type": "function", **_PARAMETERS, "strict": True}]}
    ),
    "Responses, a tool on a socket": Place(
        "strict tool",
        "v1/responses",
        {**_CREATE, "tools": [{"type": "function", **_PARAMETERS, "strict": True}]},
        socket=True,
    ),
    "Responses, a number": Place("number", "v1/responses", {**_RESPONSE, "temperature": _HOLE}),
    "Responses, a number on a socket": Place("number", "v1/responses", {**_CREATE, "top_p": _HOLE}, socket=True),
    "Messages": Place(
        "schema", "v1/messages", {**_CHAT, "output_config": {"format": {"type": "json_schema", "schema": _HOLE}}}
    ),
    "Messages, a strict tool": Place(
        "strict tool", "v1/messages", {**_CHAT, "tools": [{"name": "f", "input_schema": _HOLE, "strict": True}]}
    ),
    "Messages, a stop string": Place("stop", "v1/messages", {**_CHAT, "stop_sequences": [_HOLE]}),
    "Messages, a number": Place("number", "v1/messages", {**_CHAT, "temperature": _HOLE}),
    "Ollama": Place("schema", "api/chat", {**_CHAT, **_OLLAMA, "format": _HOLE}),
    "Ollama, streamed": Place("schema", "api/chat", {**_CHAT, **_OLLAMA, "format": _HOLE, "stream": True}),
    "Ollama, a text": Place("schema", "api/generate", {**_OLLAMA, "prompt": "q", "format": _HOLE}),
    "Ollama, a tool": Place("tool", "api/chat", {**_CHAT, **_OLLAMA, "tools": [_FUNCTION]}),
    "Ollama, a stop string": Place(
        "stop", "api/generate", {**_OLLAMA, "prompt": "q", "options": {"num_predict": 4, "stop": [_HOLE]}}
    ),
    "Ollama, a number": Place("number", "api/generate", {**_OLLAMA, "prompt": "q", "options": {"num_predict": _HOLE}}),
    "TGI": Place(
        "schema", "generate", {"inputs": "q", "parameters": {**_TGI, "grammar": {"type": "json", "value": _HOLE}}}
    ),
    "TGI, an expression": Place(
        "regex", "generate", {"inputs": "q", "parameters": {**_TGI, "grammar": {"type": "regex", "value": _HOLE}}}
    ),
    "TGI, a stop string": Place("stop", "generate", {"inputs": "q", "parameters": {**_TGI, "stop": [_HOLE]}}),
    "TGI, a number": Place("number", "generate", {"inputs": "q", "parameters": {**_TGI, "seed": _HOLE}}),
    "MLC-LLM": Place(
        "schema",
        "mlc/v1/chat/completions",
        {**_CHAT, "response_format": {"type": "json_object", "schema": _HOLE}},
        text=True,
    ),
    "MLC-LLM, a schema that is no text": Place(
        "schema", "mlc/v1/chat/completions", {**_CHAT, "response_format": {"type": "json_object", "schema": _HOLE}}
    ),
    "MLC-LLM, an expression": Place(
        "regex", "mlc/v1/chat/completions", {**_CHAT, "structured_outputs": {"regex": _HOLE}}
    ),
    "MLC-LLM, a number": Place("number", "mlc/v1/chat/completions", {**_CHAT, "temperature": _HOLE}),
    "MLC-LLM, a call's number": Place(
        "number",
        "mlc/v1/chat/completions",
        {
            **_CHAT,
            "messages": [
                {"role": "user", "content": "q"},
                {"role": "assistant", "tool_calls": [_CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "r"},
            ],
        },
    ),
    "LMI, OpenAI's schema": Place("schema", "invocations", {**_CHAT, "response_format": _FORM}),
    "LMI, OpenAI's tool": Place("strict tool", "invocations", {**_CHAT, "tools": [_STRICT]}),
    "LMI, OpenAI's expression": Place("regex", "invocations", {**_TEXT, "structured_outputs": {"regex": _HOLE}}),
    "LMI, a stop string": Place(
        "stop", "invocations", {"inputs": "q", "parameters": {**_TGI, "stop_sequences": [_HOLE]}}
    ),
    "LMI, a number": Place("number", "invocations", {"inputs": "q", "parameters": {**_TGI, "top_k": _HOLE}}),
    "LMI, an unknown number": Place("number", "invocations", {"inputs": "q", "parameters": {**_TGI, "unknown": _HOLE}}),
    "LMTP, a number": Place("number", LMTP, {**_GENERATE, "temperature": _HOLE}, socket=True),
    "LMTP, a bias": Place("number", LMTP, {**_GENERATE, "logit_bias": {"1": _HOLE}}, socket=True),
    "LMTP, a mask": Place("mask", LMTP, {**_GENERATE, "logit_bias": _HOLE}, socket=True),
    "LMTP, a stop string": Place(
        "stop", LMTP, {**_GENERATE, "mode": "text", "prompt": "q", "stop": [_HOLE]}, socket=True
    ),
    "OpenAI, a mask": Place("mask", "v1/chat/completions", {**_CHAT, "logit_bias": _HOLE}),
    "a model's path": Place("path", f"v1/models/{_HOLE}"),
    "LMI, a path": Place("path", f"models/{_HOLE}/invoke", {"inputs": "q", "parameters": _TGI}),
    "a flow's path": Place("path", f"api/v1/flow/{_HOLE}/service/text-completion", _NATIVE),
    "no path": Place("path", _HOLE),
}
"""By name."""
