"""The table: every door at which a completion can be asked for, in each of its forms."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tests.same_answer import readers
from tests.same_answer.row import MODEL, SYSTEM, Asked, Ending, Row
from tests.same_answer.ways import Body, called, commanded, streamed, talked, whole

PLAIN: Final[Mapping[Ending, str]] = {"length": "length", "stop": "stop", "end": "stop"}
ANTHROPIC: Final[Mapping[Ending, str]] = {"length": "max_tokens", "stop": "stop_sequence", "end": "end_turn"}
TGI: Final[Mapping[Ending, str]] = {"length": "length", "stop": "stop_sequence", "end": "eos_token"}
RESPONSES: Final[Mapping[Ending, str]] = {"length": "max_output_tokens", "end": "completed"}
_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
STREAM: Final = {"stream": True}
WHOLE: Final = {"stream": False}


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _turns(asked: Asked) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": asked.case.question}]


def _native(**fields: Any) -> Body:
    def make(asked: Asked) -> dict[str, Any]:
        case = asked.case
        stop = None if case.stop is None else [case.stop]
        limits = {"temperature": case.temperature, "max_tokens": case.max_tokens, "logprobs": 0}
        return {
            **({"prompt": asked.text} if fields.get("raw") else {"system": SYSTEM, "prompt": case.question}),
            "model": MODEL,
            "sampling": limits | _given(seed=case.seed, stop=stop, keep_stop=fields.get("keep_stop")),
            **{name: value for name, value in fields.items() if name != "keep_stop"},
        }

    return make


def _native_ids(asked: Asked) -> dict[str, Any]:
    body = _native(raw=True)(asked).items()
    return {name: value for name, value in body if name not in {"prompt", "raw"}} | {"prompt_ids": asked.ids}


def _native_message(asked: Asked) -> str:
    return json.dumps({"id": 1, "service": "text-completion", "request": _native(streaming=True)(asked)})


def _openai(asked: Asked) -> dict[str, Any]:
    case = asked.case
    limits = {"model": MODEL, "temperature": case.temperature, "max_tokens": case.max_tokens}
    return limits | _given(seed=case.seed, stop=case.stop)


def _chat(asked: Asked) -> dict[str, Any]:
    return _openai(asked) | {"messages": _turns(asked), "logprobs": True}


def _completion(asked: Asked) -> dict[str, Any]:
    return _openai(asked) | {"prompt": asked.text, "logprobs": 1}


def _completion_ids(asked: Asked) -> dict[str, Any]:
    return _completion(asked) | {"prompt": asked.ids}


def _response(asked: Asked) -> dict[str, Any]:
    limits = {"model": MODEL, "temperature": asked.case.temperature, "max_output_tokens": asked.case.max_tokens}
    told = {"include": ["message.output_text.logprobs"], "store": False}
    return limits | told | {"instructions": SYSTEM, "input": asked.case.question}


def _response_message(asked: Asked) -> str:
    return json.dumps(_response(asked) | {"type": "response.create"})


def _message(asked: Asked) -> dict[str, Any]:
    case = asked.case
    limits = {"model": MODEL, "temperature": case.temperature, "max_tokens": case.max_tokens, "system": SYSTEM}
    stops = _given(stop_sequences=None if case.stop is None else [case.stop])
    return limits | stops | {"messages": _turns(asked)[1:]}


def _sampled(asked: Asked) -> dict[str, Any]:
    """As TGI and LMI have it: without `do_sample` and the like the most probable token is taken."""
    case = asked.case
    drawn = {} if case.seed is None else {"do_sample": True, "temperature": case.temperature, "seed": case.seed}
    return {"max_new_tokens": case.max_tokens, "details": True} | drawn


def _tgi(asked: Asked) -> dict[str, Any]:
    stops = _given(stop=None if asked.case.stop is None else [asked.case.stop])
    return {"inputs": asked.text, "parameters": _sampled(asked) | stops}


def _lmi(**parameters: Any) -> Body:
    def make(asked: Asked) -> dict[str, Any]:
        stops = _given(stop_sequences=None if asked.case.stop is None else [asked.case.stop])
        return {"inputs": asked.text, "parameters": _sampled(asked) | stops | parameters}

    return make


def _lmi_listed(asked: Asked) -> dict[str, Any]:
    return {**_lmi(details=False)(asked), "inputs": [asked.text]}


def _lmtp(mode: str) -> Any:
    def make(asked: Asked) -> str:
        case = asked.case
        prompts = {"ids": asked.ids, "text": asked.text, "turns": _turns(asked)}
        asks = {"mode": "ids"} if mode == "ids" else {"mode": "text", "top_logprobs": 1}
        limits = {"model": MODEL, "stream_id": 1, "temperature": case.temperature, "max_tokens": case.max_tokens}
        given = _given(seed=case.seed, stop=None if case.stop is None else [case.stop])
        return f"GENERATE {json.dumps(limits | asks | given | {'prompt': prompts[mode]})}"

    return make


def _is_last_item(item: Any) -> bool:
    return item["finish_reason"] is not None


def _ollama(asked: Asked) -> dict[str, Any]:
    case = asked.case
    limits = {"temperature": case.temperature, "num_predict": case.max_tokens}
    return {"model": MODEL, "options": limits | _given(seed=case.seed, stop=case.stop), "logprobs": True}


def _ollama_chat(asked: Asked) -> dict[str, Any]:
    return _ollama(asked) | {"messages": _turns(asked)}


def _ollama_prompt(asked: Asked) -> dict[str, Any]:
    return _ollama(asked) | {"system": SYSTEM, "prompt": asked.case.question}


def _ollama_raw(asked: Asked) -> dict[str, Any]:
    return _ollama(asked) | {"prompt": asked.text, "raw": True}


NATIVE: Final = "/api/v1/text-completion"
USAGE: Final = {"stream": True, "stream_options": {"include_usage": True}}
COUNTED: Final = "text pieces in_token out_token"
TOKENS: Final = "text ids pieces out_token"

REFERENCE: Final = Row("native, whole", whole(NATIVE, _native()), readers.read_native, PLAIN)
KEPT_REFERENCE: Final = replace(REFERENCE, send=whole(NATIVE, _native(keep_stop=True)))
"""For the doors where the stop string stays in the text."""

_CHAT: Final = Row("OpenAI chat", whole("/v1/chat/completions", _chat), readers.read_chat, PLAIN, COUNTED)
_TEXT: Final = Row("completions", whole("/v1/completions", _completion), readers.read_completion, PLAIN, COUNTED)
_RESPONSE: Final = Row(
    "Responses", whole("/v1/responses", _response), readers.read_response, RESPONSES, COUNTED, seeds=False, stops=False
)
_MESSAGE: Final = Row(
    "Messages", whole("/v1/messages", _message), readers.read_message, ANTHROPIC, "text in_token out_token", seeds=False
)
_TGI: Final = Row("TGI", whole("/", _tgi), readers.read_generated, TGI, keeps_stop=True)
_LMI: Final = Row("LMI", whole("/invocations", _lmi()), readers.read_generated, TGI, TOKENS)
_LMI_LINES: Final = replace(_LMI, send=streamed("/invocations", _lmi(), STREAM), read=readers.read_generated_tokens)
_LMTP: Final = Row("LMTP", talked("/lmtp", _lmtp("text"), _is_last_item), readers.read_pieces, PLAIN, "text ids")
_OLLAMA: Final = Row("Ollama", whole("/api/chat", _ollama_chat, WHOLE), readers.read_ollama, PLAIN, COUNTED)
_SDK: Final = Row("SDK", called(socket=False, streaming=True), readers.read_records, PLAIN)

ROWS: Final[tuple[Row, ...]] = (
    replace(REFERENCE, name="native, events", send=streamed(NATIVE, _native(streaming=True))),
    replace(
        REFERENCE,
        name="native, WebSocket",
        send=talked("/api/v1/socket", _native_message, lambda message: bool(message["complete"])),
    ),
    replace(REFERENCE, name="native, raw text", send=whole(NATIVE, _native(raw=True))),
    replace(REFERENCE, name="native, ids", send=streamed(NATIVE, _native_ids, {"streaming": True})),
    replace(_CHAT, name="chat, whole"),
    replace(_CHAT, name="chat, events", send=streamed("/v1/chat/completions", _chat, USAGE)),
    replace(_TEXT, name="completions, whole"),
    replace(_TEXT, name="completions, events", send=streamed("/v1/completions", _completion, USAGE)),
    replace(_TEXT, name="completions, ids", send=streamed("/v1/completions", _completion_ids, USAGE)),
    replace(_RESPONSE, name="Responses, whole"),
    replace(_RESPONSE, name="Responses, events", send=streamed("/v1/responses", _response, STREAM)),
    replace(
        _RESPONSE,
        name="Responses, WebSocket",
        send=talked("/v1/responses", _response_message, lambda event: event["type"] in _ENDS),
    ),
    replace(_MESSAGE, name="Messages, whole"),
    replace(
        _MESSAGE,
        name="Messages, events",
        send=streamed("/v1/messages", _message, STREAM),
        read=readers.read_message_events,
    ),
    replace(_TGI, name="TGI, whole in a list"),
    replace(_TGI, name="TGI, whole", send=whole("/generate", _tgi)),
    replace(_TGI, name="TGI, events", send=streamed("/generate_stream", _tgi), read=readers.read_generated_tokens),
    replace(_LMI, name="LMI, whole"),
    replace(_LMI, name="LMI, a model by its path", send=whole(f"/predictions/{MODEL}", _lmi())),
    replace(_LMI_LINES, name="LMI, lines"),
    replace(
        _LMI_LINES, name="LMI, events", send=streamed(f"/models/{MODEL}/invoke", _lmi(output_formatter="sse"), STREAM)
    ),
    replace(
        _LMI,
        name="LMI, 3p",
        send=whole("/invocations", _lmi(output_formatter="3p", details=False)),
        read=readers.read_metered,
        words=PLAIN,
        tells="text in_token out_token",
    ),
    replace(
        _LMI,
        name="LMI, 3p_stream",
        send=streamed("/invocations", _lmi(output_formatter="3p_stream", details=False)),
        read=readers.read_metered,
        words=PLAIN,
        tells="text in_token out_token",
    ),
    replace(
        _LMI,
        name="LMI, a list",
        send=whole("/invocations", _lmi_listed),
        read=readers.read_listed,
        words={},
        tells="text",
    ),
    replace(
        _LMI,
        name="LMI, lines of a list",
        send=streamed("/invocations", _lmi_listed, STREAM),
        read=readers.read_outputs,
        words={},
        tells="text",
    ),
    replace(_CHAT, name="LMI, a chat", send=streamed("/invocations", _chat, USAGE)),
    replace(_TEXT, name="LMI, a completion", send=whole("/invocations", _completion)),
    replace(_LMTP, name="LMTP, a text"),
    replace(_LMTP, name="LMTP, turns", send=talked("/lmtp", _lmtp("turns"), _is_last_item)),
    replace(
        _LMTP,
        name="LMTP, ids",
        send=talked("/lmtp", _lmtp("ids"), _is_last_item),
        read=readers.read_items,
        tells="ids",
        stops=False,
    ),
    replace(_CHAT, name="MLC-LLM chat, whole", send=whole("/mlc/v1/chat/completions", _chat)),
    replace(_CHAT, name="MLC-LLM chat, events", send=streamed("/mlc/v1/chat/completions", _chat, USAGE)),
    replace(_TEXT, name="MLC-LLM completions", send=streamed("/mlc/v1/completions", _completion, USAGE)),
    replace(_OLLAMA, name="Ollama chat, whole"),
    replace(_OLLAMA, name="Ollama chat, lines", send=streamed("/api/chat", _ollama_chat)),
    replace(_OLLAMA, name="Ollama generate, lines", send=streamed("/api/generate", _ollama_prompt)),
    replace(_OLLAMA, name="Ollama generate, raw", send=whole("/api/generate", _ollama_raw, WHOLE)),
    replace(_SDK, name="SDK, events"),
    replace(_SDK, name="SDK, WebSocket", send=called(socket=True, streaming=True)),
    replace(
        _SDK,
        name="SDK, whole",
        send=called(socket=False, streaming=False),
        read=readers.read_result,
        tells="text in_token out_token",
    ),
    replace(
        REFERENCE,
        name="tg-invoke-llm",
        send=commanded,
        tells="text in_token out_token",
        seeds=False,
        stops=False,
    ),
)
