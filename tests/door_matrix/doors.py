"""The rows of the matrix: every door at which a completion can be asked for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tests.door_matrix.door import Door

Ask = Callable[[str, str, str], Mapping[str, Any]]


def _native(**fields: Any) -> Ask:
    return lambda flow, model, question: {"prompt": question, "model": model, **fields}


def _turns(**fields: Any) -> Ask:
    return lambda flow, model, question: {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        **fields,
    }


def _input(**fields: Any) -> Ask:
    return lambda flow, model, question: {"model": model, "input": question, **fields}


def _inputs(**parameters: Any) -> Ask:
    return lambda flow, model, question: {"inputs": question, "model": model, "parameters": parameters}


def _prompt(**fields: Any) -> Ask:
    return lambda flow, model, question: {"model": model, "prompt": question, **fields}


def _ask_on_socket(flow: str, model: str, question: str) -> Mapping[str, Any]:
    request = {"prompt": question, "model": model, "streaming": True}
    return {"id": "a", "service": "text-completion", "flow": flow, "request": request}


def _turns_on_stream(flow: str, model: str, question: str) -> Mapping[str, Any]:
    turns = [{"role": "user", "content": question}]
    return {"stream_id": 1, "model": model, "mode": "text", "prompt": turns, "max_tokens": 100_000_000}


_NATIVE = Door(
    "native, whole",
    "body",
    "/api/v1/flow/{flow}/service/text-completion",
    _native(),
    text="response",
    kinds=("error.type",),
    advises=False,
)
_CHAT = Door(
    "OpenAI chat, whole",
    "body",
    "/v1/chat/completions",
    _turns(),
    text="choices.0.message.content",
    kinds=("error.code",),
)
_COMPLETIONS = Door(
    "OpenAI completions, whole",
    "body",
    "/v1/completions",
    _prompt(),
    text="choices.0.text",
    kinds=("error.code",),
)
_RESPONSES = Door(
    "Responses, whole",
    "body",
    "/v1/responses",
    _input(),
    text="output.0.content.0.text",
    kinds=("error.code",),
)
_MESSAGES = Door(
    "Anthropic Messages, whole",
    "body",
    "/v1/messages",
    _turns(max_tokens=10_000),
    text="content.0.text",
    kinds=("error.type",),
)
_TGI = Door(
    "TGI, whole",
    "body",
    "/",
    _inputs(),
    text="0.generated_text",
    kinds=("error_type",),
    advises=False,
)
_LMI = Door(
    "LMI, whole",
    "body",
    "/invocations",
    _inputs(),
    text="generated_text",
    kinds=("type", "details.finish_reason"),
    advises=False,
)
_MLC = replace(
    _CHAT,
    name="MLC-LLM chat, whole",
    path="/mlc/v1/chat/completions",
    kinds=("message",),
    sentence="error",
    advises=False,
)
_OLLAMA = Door(
    "Ollama chat, whole",
    "body",
    "/api/chat",
    _turns(stream=False),
    text="message.content",
    kinds=("error",),
    sentence="error",
    advises=False,
)
_OLLAMA_LINES = replace(_OLLAMA, name="Ollama chat, lines", way="events", ask=_turns(), last='"done":true')

DOORS: Final[tuple[Door, ...]] = (
    replace(
        _NATIVE,
        name="native, events",
        way="events",
        ask=_native(streaming=True),
        last='"end_of_stream":true',
        breaks=False,
    ),
    _NATIVE,
    Door(
        "native, WebSocket",
        "socket",
        "/api/v1/socket",
        _ask_on_socket,
        text="response.response",
        kinds=("error.type",),
        last='"complete":true',
        failed=('"complete":true',),
        cancel={"id": "a", "cancel": True},
        breaks=False,
        advises=False,
    ),
    replace(
        _CHAT,
        name="OpenAI chat, events",
        way="events",
        ask=_turns(stream=True),
        text="choices.0.delta.content",
        last="[DONE]",
    ),
    _CHAT,
    replace(
        _COMPLETIONS,
        name="OpenAI completions, events",
        way="events",
        ask=_prompt(stream=True),
        last="[DONE]",
    ),
    _COMPLETIONS,
    replace(
        _RESPONSES,
        name="Responses, events",
        way="events",
        ask=_input(stream=True),
        text="delta",
        kinds=("error.code", "response.error.code"),
        last='"type":"response.completed"',
    ),
    _RESPONSES,
    Door(
        "Responses, WebSocket",
        "socket",
        "/v1/responses",
        _input(type="response.create"),
        text="delta",
        kinds=("error.code", "response.error.code"),
        last='"type":"response.completed"',
        failed=('"type":"response.failed"', '"type":"error"'),
        cancel={"type": "response.cancel"},
        breaks=False,
        advises=False,
        keyed=False,
    ),
    replace(
        _MESSAGES,
        name="Anthropic Messages, events",
        way="events",
        ask=_turns(max_tokens=10_000, stream=True),
        text="delta.text",
        last='"type":"message_stop"',
    ),
    _MESSAGES,
    replace(
        _TGI,
        name="TGI, events",
        way="events",
        path="/generate_stream",
        text="token.text",
        last='"generated_text":"',
        breaks=False,
        refuses_in_events=True,
    ),
    _TGI,
    replace(
        _LMI,
        name="LMI, events",
        way="events",
        ask=_inputs(output_formatter="sse"),
        text="token.text",
        last='"generated_text":"',
        breaks=False,
    ),
    _LMI,
    Door(
        "LMTP, WebSocket",
        "socket",
        "/lmtp",
        _turns_on_stream,
        text="text",
        kinds=("code",),
        last='"finish_reason":"stop"',
        failed=('"error":',),
        cancel={"stream_id": 1},
        verbs=("GENERATE ", "CANCEL "),
        greeting='HELLO {"accept":["ERRORS"]}',
        body_limits=4,
        breaks=False,
        advises=False,
    ),
    replace(
        _MLC,
        name="MLC-LLM chat, events",
        way="events",
        ask=_turns(stream=True),
        text="choices.0.delta.content",
        last="[DONE]",
    ),
    _MLC,
    _OLLAMA_LINES,
    replace(_OLLAMA_LINES, name="Ollama generate, lines", path="/api/generate", ask=_prompt(), text="response"),
    _OLLAMA,
)
