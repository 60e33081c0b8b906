"""The body of a generation -> the request record: each parameter has its field, and each bad one a sentence."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_base.protocol import Presence, Route
from tg_doors.tgi import TGI
from tg_doors.tgi.generation import read_grammar
from tg_doors.tgi.generation_parameters import GenerationParameters, Grammar
from tg_gateway.dialects import Answer, Ask, Call, Catalogue, join_output
from tg_gateway.dialects.openai.dialect import OPENAI
from tg_schema import TEXT_COMPLETION, ModelInfo, Sampling, TextCompletionRequest, TextCompletionResponse
from tg_schema.errors import BadRequest, NotFound, TgError, TooLarge, Unauthorized, Unavailable

RAW = ("raw", "keep_stop", "logprobs", "end_token", "stop")
ROUTE = Route("default", TEXT_COMPLETION, "q/default", "", model="raw")
CHAT = Route("chat", TEXT_COMPLETION, "q/chat", "", model="chat")
NEW = Route("new", TEXT_COMPLETION, "q/new", "", model="new")
PLAIN = Route("plain", TEXT_COMPLETION, "q/plain", "", plain=True, model="old")
SERVING = {
    "q/default": [Presence("p", ("q/default",), 1, 0, ("raw",), features=RAW)],
    "q/chat": [Presence("q", ("q/chat",), 1, 0, ("chat",), features=("stop",))],
}
CATALOGUE = Catalogue((ROUTE, CHAT, NEW, PLAIN), lambda queue: SERVING.get(queue, []), {"mine": "chat"})
EMPTY = Catalogue((ROUTE,), lambda queue: [], {})
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GREEDY = Sampling(temperature=0)


def call_of(body: object, operation: str = "generate", catalogue: Catalogue = CATALOGUE) -> Call:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Call(operation, catalogue, {}, {}, {}, "r", data)


def ask(body: object, operation: str = "generate") -> Ask:
    asked = TGI.parse(call_of(body, operation))
    assert isinstance(asked, Ask)
    return asked


def parse(operation: str = "generate", *, model: str | None = None, **parameters: Any) -> TextCompletionRequest:
    request = ask({"inputs": "hi", "parameters": parameters, "model": model}, operation).request
    assert isinstance(request, TextCompletionRequest)
    return request


def expected(sampling: Sampling = GREEDY, **fields: Any) -> TextCompletionRequest:
    plain = TextCompletionRequest(prompt="hi", model="raw", raw=True, sampling=sampling)
    return msgspec.structs.replace(plain, **fields)


@pytest.mark.parametrize(
    ("parameters", "sampling"),
    [
        ({}, GREEDY),
        ({"do_sample": False}, GREEDY),
        ({"do_sample": True}, Sampling(temperature=1)),
        ({"temperature": 0.5}, Sampling(temperature=0.5)),
        ({"top_k": 5}, Sampling(temperature=1, top_k=5)),
        ({"top_p": 0.5}, Sampling(temperature=1, top_p=0.5)),
        ({"typical_p": 0.5}, Sampling(temperature=1, typical_p=0.5)),
        ({"repetition_penalty": 1.5}, Sampling(temperature=0, repetition_penalty=1.5)),
        ({"frequency_penalty": -2}, Sampling(temperature=0, frequency_penalty=-2)),
        ({"max_new_tokens": 7}, Sampling(temperature=0, max_tokens=7)),
        ({"stop": []}, GREEDY),
        ({"stop": ["a", "b"]}, Sampling(temperature=0, stop=("a", "b"), keep_stop=True)),
        ({"seed": 7}, Sampling(temperature=0, seed=7)),
        ({"seed": 2**64 - 7}, Sampling(temperature=0, seed=-7)),
        ({"return_full_text": True}, GREEDY),
        ({"watermark": True}, GREEDY),
        ({"details": True}, Sampling(temperature=0, logprobs=0, end_token=True)),
        ({"decoder_input_details": True}, Sampling(temperature=0, logprobs=0, end_token=True, prompt_logprobs=0)),
        ({"top_n_tokens": 3}, Sampling(temperature=0, logprobs=3, end_token=True)),
        ({"top_n_tokens": 0}, GREEDY),
        ({"best_of": 1, "seed": 7}, Sampling(temperature=0, seed=7)),
        ({"best_of": 3, "do_sample": True}, Sampling(temperature=1, n=3, logprobs=0, end_token=True)),
        (dict.fromkeys(("best_of", "stop", "details", "seed", "do_sample", "grammar")), GREEDY),
    ],
)
def test_sampling(parameters: dict[str, Any], sampling: Sampling) -> None:
    assert parse(**parameters) == expected(sampling)


@pytest.mark.parametrize(
    ("parameters", "fields"),
    [
        ({"grammar": {"type": "json", "value": SCHEMA}}, {"schema": SCHEMA}),
        ({"grammar": {"type": "json_object", "value": SCHEMA}}, {"schema": SCHEMA}),
        ({"grammar": {"type": "json", "value": json.dumps(SCHEMA)}}, {"schema": SCHEMA}),
        (
            {"grammar": {"type": "json_schema", "value": {"name": "n", "schema": SCHEMA}}},
            {"schema": SCHEMA, "schema_name": "n"},
        ),
        ({"grammar": {"type": "json_schema", "value": {"name": 7, "schema": SCHEMA}}}, {"schema": SCHEMA}),
        ({"grammar": {"type": "regex", "value": "a+"}}, {"regex": "a+"}),
        ({"adapter_id": "lora"}, {"adapter": "lora"}),
        ({"truncate": 5}, {"max_prompt_tokens": 5}),
    ],
)
def test_the_form_and_the_adapter(parameters: dict[str, Any], fields: dict[str, Any]) -> None:
    assert parse(**parameters) == expected(**fields)


def test_a_stream_asks_for_its_tokens() -> None:
    streamed = expected(Sampling(temperature=0, logprobs=0, end_token=True), streaming=True)
    assert parse("stream") == streamed
    assert ask({"inputs": "hi", "stream": True}, "generate-compatible").request == streamed
    assert ask({"inputs": "hi", "stream": False}, "generate-compatible").request == expected()
    # As TGI, `/generate` does not know the field.
    assert ask({"inputs": "hi", "stream": True}).request == expected()


def test_a_chat_model_takes_the_inputs_as_what_a_user_says() -> None:
    for name in ("chat", "mine"):
        assert parse("stream", model=name) == expected(model="chat", raw=False, streaming=True)
    assert parse(model="chat", details=True) == expected(model="chat", raw=False)
    assert parse(model="chat", top_n_tokens=2).features == {"logprobs"}


def test_what_an_unknown_model_lacks_it_says_itself() -> None:
    assert parse(model="new", details=True) == expected(Sampling(temperature=0, logprobs=0), model="new")
    assert parse(model="old", details=True) == expected(model="old", raw=False)


@pytest.mark.parametrize("name", [None, "", "tgi", "dummy", "raw"])
def test_the_default_model(name: str | None) -> None:
    assert parse(model=name) == expected()
    body = {"model": name or "tgi", "messages": [{"role": "user", "content": "hi"}]}
    asked = OPENAI.parse(call_of(body, "chat-completion"))
    assert isinstance(asked, Ask)
    assert asked.request.model == "raw"


@pytest.mark.parametrize(
    ("operation", "body", "says"),
    [
        ("generate", b"", "not valid JSON"),
        ("generate", b"{", "not valid JSON"),
        ("generate", b"[]", "Expected `object`"),
        ("generate", b'{"inputs": "\xff"}', "UTF-8"),
        ("generate", b'{"inputs": "a", "parameters": ' + b"[" * 100_000, "$.parameters"),
        ("generate", b'{"inputs": "a", "x": ' + b"[" * 100_000, "nested too deep"),
        ("generate", {}, "missing required field `inputs`"),
        ("generate", {"inputs": ""}, "inputs must not be empty"),
        ("generate", {"inputs": ["a", "b"]}, "$.inputs"),
        ("generate", {"inputs": 7}, "$.inputs"),
        ("generate", {"inputs": None}, "$.inputs"),
        ("generate", {"inputs": "a", "parameters": []}, "$.parameters"),
        ("generate-compatible", {"inputs": "a", "stream": "yes"}, "$.stream"),
        ("tokenize", {}, "missing required field `inputs`"),
        ("tokenize", {"inputs": ""}, "inputs must not be empty"),
        ("tokenize-chat", {}, "messages"),
        ("tokenize-chat", {"messages": [{"role": "nobody", "content": "a"}]}, "role"),
    ],
)
def test_a_bad_body(operation: str, body: object, says: str) -> None:
    with pytest.raises(BadRequest, match="(?s)" + says.replace("$", r"\$")):
        TGI.parse(call_of(body, operation))


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"temperature": 0}, "$.parameters.temperature"),
        ({"temperature": -1}, "$.parameters.temperature"),
        ({"temperature": "hot"}, "$.parameters.temperature"),
        ({"repetition_penalty": 0}, "$.parameters.repetition_penalty"),
        ({"frequency_penalty": 2.5}, "$.parameters.frequency_penalty"),
        ({"top_k": 0}, "$.parameters.top_k"),
        ({"top_p": 0}, "$.parameters.top_p"),
        ({"top_p": 1}, "$.parameters.top_p"),
        ({"typical_p": 1.5}, "$.parameters.typical_p"),
        ({"max_new_tokens": 0}, "$.parameters.max_new_tokens"),
        ({"max_new_tokens": -1}, "$.parameters.max_new_tokens"),
        ({"stop": "END"}, "$.parameters.stop"),
        ({"stop": list("abcde")}, "parameters.stop may have 4 texts"),
        ({"stop": [""]}, "none of them empty"),
        ({"stop": ["a"], "model": "chat"}, "this model removes it"),
        ({"truncate": 0}, "$.parameters.truncate"),
        ({"truncate": 5, "model": "chat"}, "parameters.truncate: this model takes no raw text"),
        ({"seed": -1}, "$.parameters.seed"),
        ({"seed": 2**64}, "parameters.seed has 64 bits"),
        ({"top_n_tokens": -1}, "$.parameters.top_n_tokens"),
        ({"best_of": 0}, "$.parameters.best_of"),
        ({"best_of": 1000, "do_sample": True}, "$.parameters.best_of"),
        ({"best_of": 2}, "parameters.best_of: several answers are the same"),
        ({"best_of": 2, "temperature": 0.5, "seed": 1}, "parameters.seed"),
        ({"best_of": 2, "do_sample": True, "operation": "stream"}, "parameters.best_of cannot be streamed"),
        ({"decoder_input_details": True, "operation": "stream"}, "parameters.decoder_input_details cannot be streamed"),
        ({"grammar": {"type": "gbnf", "value": "a"}}, "$.parameters.grammar.type"),
        ({"grammar": {"type": "json"}}, "missing required field `value`"),
        ({"grammar": {"type": "json", "value": 7}}, "value must be a JSON schema"),
        ({"grammar": {"type": "json", "value": "{"}}, "not valid JSON"),
        ({"grammar": {"type": "json_schema", "value": {}}}, "value.schema must be a JSON schema"),
        ({"grammar": {"type": "regex", "value": ""}}, "regular expression"),
        ({"grammar": {"type": "regex", "value": {}}}, "regular expression"),
        ({"adapter_id": "b", "model": "raw:a"}, "parameters.adapter_id"),
        ({"model": "old", "seed": 7}, "the model can't do this: seed"),
    ],
)
def test_a_bad_parameter(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse(**parameters)
    assert says in refused.value.message


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PARAMETERS = st.dictionaries(st.sampled_from(GenerationParameters.__struct_fields__), ANYTHING, max_size=4)
BODIES = st.fixed_dictionaries(
    {"inputs": st.just("hi") | ANYTHING},
    optional={"parameters": PARAMETERS | ANYTHING, "stream": ANYTHING, "model": st.sampled_from(["chat", "old"])},
)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["generate", "stream", "generate-compatible", "tokenize", "tokenize-chat"]), BODIES)
def test_anything_is_asked_or_refused(operation: str, body: dict[str, Any]) -> None:
    call = call_of(body, operation)
    try:
        asked = TGI.parse(call)
    except TgError as error:
        refused = TGI.refuse(error, error.status, call)
        assert refused.status in {200, 404, 422}
        assert refused.body.removeprefix(b"data: ").startswith(b'{"error":"')
    else:
        assert isinstance(asked, Ask)
        assert asked.request.model in {"raw", "chat", "old"}


def test_an_unknown_model() -> None:
    for operation in ("generate", "stream", "tokenize"):
        with pytest.raises(NotFound, match="there are: raw"):
            TGI.parse(call_of({"inputs": "hi", "model": "gpt"}, operation))


@pytest.mark.parametrize(
    ("body", "ignored"),
    [
        ({"inputs": "hi"}, None),
        ({"inputs": "hi", "parameters": {"watermark": False}}, None),
        ({"inputs": "hi", "parameters": {"watermark": True}}, "parameters.watermark"),
        ({"inputs": "hi", "options": {}, "parameters": {"num_beams": 2}}, "options, parameters.num_beams"),
    ],
)
def test_what_is_ignored_is_said(body: dict[str, Any], ignored: str | None) -> None:
    streamed = ask(body, "stream")
    assert streamed.headers.get("X-Tokengrid-Ignored") == ignored
    assert (streamed.headers["x-compute-type"], streamed.headers["x-compute-characters"]) == ("unknown", "2")


def test_tokenize() -> None:
    wanted = TextCompletionRequest(prompt="hi", model="raw", raw=True, operation="tokenize", token_texts=True)
    assert ask({"inputs": "hi"}, "tokenize").request == wanted
    chat = TextCompletionRequest(model="chat", texts=("hi",), operation="tokenize", token_texts=True)
    assert ask({"inputs": "hi", "model": "chat"}, "tokenize").request == chat
    body = {"model": "tgi", "messages": [{"role": "user", "content": "hi"}], "stream": True, "temperature": 1}
    assert ask(body, "tokenize-chat").request == msgspec.structs.replace(wanted, raw=False)


def test_no_grammar() -> None:
    assert read_grammar(None) == {}
    assert read_grammar(Grammar("regex", "a")) == {"regex": "a"}


def answer(operation: str, catalogue: Catalogue = CATALOGUE) -> tuple[int, Any]:
    return read(TGI.parse(call_of(b"", operation, catalogue)))


def read(found: object) -> tuple[int, Any]:
    assert isinstance(found, Answer)
    return found.status, json.loads(found.body) if found.body else None


def test_what_the_server_says_of_itself() -> None:
    call = call_of(b"", "info")
    asked = TGI.parse(call)
    assert isinstance(asked, Ask)
    assert asked.request == TextCompletionRequest(operation="list-models", model="raw")
    asked.writer.write(TextCompletionResponse(models=(ModelInfo("raw", context_length=512),), end_of_stream=True))
    info = json.loads(join_output(asked.writer.end()))
    assert (info["model_id"], info["max_stop_sequences"], info["max_best_of"]) == ("raw", 4, 128)
    assert (info["max_input_tokens"], info["max_total_tokens"], info["router"]) == (511, 512, "tokengrid")
    limits = {"max_input_tokens": None, "max_total_tokens": None}
    assert read(TGI.refuse(Unavailable("it does not tell"), 503, call)) == (200, info | limits)
    assert answer("info", EMPTY) == (200, info | limits)
    assert answer("health") == (200, None)
    assert answer("health", EMPTY) == (503, {"error": "unhealthy", "error_type": "healthcheck"})
    nameless = Catalogue((nameless_route(),), lambda queue: [], {})
    with pytest.raises(Unavailable):
        answer("info", nameless)


def nameless_route() -> Route[Any, Any]:
    """A flow whose model nobody has named yet."""
    return Route("default", TEXT_COMPLETION, "q/default", "")


@pytest.mark.parametrize(
    ("error", "status", "body", "operation", "wanted"),
    [
        (BadRequest("no"), 400, b"{}", "generate", (422, "validation")),
        (BadRequest("no"), 400, b'{"stream":true}', "generate", (422, "validation")),
        (BadRequest("no"), 400, b'{"stream":true}', "generate-compatible", (200, "validation")),
        (BadRequest("no"), 400, b'{"stream":7}', "generate-compatible", (422, "validation")),
        (BadRequest("no"), 400, b"{", "stream", (200, "validation")),
        (BadRequest("no method"), 405, b"", "", (405, "validation")),
        (BadRequest("empty"), 400, b"", "stream", (200, "validation")),
        (TooLarge("long prompt"), 413, b"{}", "generate", (422, "validation")),
        (TooLarge("long body"), 413, b"", "stream", (413, "validation")),
        (Unauthorized("who"), 401, b"", "stream", (401, "unauthorized")),
        (NotFound("none"), 404, b"{}", "generate", (404, "not_found")),
        (Unavailable("down"), 503, b"{}", "generate", (424, "generation")),
        (Unavailable("down"), 503, b"{}", "stream", (200, "generation")),
    ],
)
def test_refusals(error: TgError, status: int, body: bytes, operation: str, wanted: tuple[int, str]) -> None:
    refused = TGI.refuse(error, status, call_of(body, operation))
    data = refused.body
    if wanted[0] == 200:
        assert refused.content_type == "text/event-stream; charset=utf-8"
        assert data.startswith(b"data: {")
        assert data.endswith(b"}\n\n")
        data = data[6:]
    assert json.loads(data) == {"error": error.message, "error_type": wanted[1]}
    assert refused.status == wanted[0]
