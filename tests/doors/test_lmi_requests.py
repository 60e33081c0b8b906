"""The body of an invocation -> the request record: each parameter has its field, is ignored by name, or is refused."""

import json
import pickle
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tg_base.config import GatewayConfig
from tg_base.protocol import Presence, Route
from tg_doors import LmiConfig
from tg_doors.lmi import LMI, Lmi, OutputStep
from tg_doors.lmi.invocation import read_invocation
from tg_gateway.dialects import Answer, Ask, Batch, Call, Catalogue, join_output
from tg_schema import TEXT_COMPLETION, Sampling, TextCompletionRequest, TextCompletionResponse, encode
from tg_schema.errors import BadRequest, NotFound

RAW = ("raw", "keep_stop", "logprobs", "end_token", "stop")
ROUTE = Route("default", TEXT_COMPLETION, "q/default", "", model="raw")
CHAT = Route("chat", TEXT_COMPLETION, "q/chat", "", model="chat")
PLAIN = Route("plain", TEXT_COMPLETION, "q/plain", "", plain=True, model="old")
BEAMS = Route("beams", TEXT_COMPLETION, "q/beams", "", model="beams")
SERVING = {
    "q/default": [Presence("p", ("q/default",), 1, 0, ("raw",), features=RAW)],
    "q/chat": [Presence("q", ("q/chat",), 1, 0, ("chat",), features=("stop",))],
    "q/whole": [Presence("w", ("q/whole",), 1, 0, ("whole",), features=("raw", "top_p", "top_k"))],
    "q/beams": [Presence("b", ("q/beams",), 1, 0, ("beams",), features=("raw", "length_penalty"))],
}
WHOLE = Route("whole", TEXT_COMPLETION, "q/whole", "", model="whole")
CATALOGUE = Catalogue((ROUTE, CHAT, PLAIN, BEAMS, WHOLE), lambda queue: SERVING.get(queue, []), {"mine": "chat"})
HI = {"inputs": "hi"}
GREEDY = Sampling(temperature=0, max_tokens=30)


def ask(body: object, door: Lmi = LMI, *, model: str = "", headers: dict[str, str] | None = None) -> Ask:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = {"model": model} if model else {}
    asked = door.parse(Call("generate", CATALOGUE, headers or {}, path, {}, "r", data))
    assert isinstance(asked, Ask)
    return asked


def answer(body: object, door: Lmi, *, model: str = "") -> Any:
    """The JSON of a whole answer without text."""
    writer = ask(body, door, model=model).writer
    writer.write(TextCompletionResponse(finish_reason="stop", end_of_stream=True))
    return json.loads(join_output(writer.end()))


def parse(*, model: str | None = None, stream: bool | None = None, **parameters: Any) -> TextCompletionRequest:
    request = ask({"inputs": "hi", "parameters": parameters, "model": model, "stream": stream}).request
    assert isinstance(request, TextCompletionRequest)
    return request


def drawn(**fields: Any) -> Sampling:
    return msgspec.structs.replace(Sampling(temperature=1, max_tokens=30), **fields)


def greedy(**fields: Any) -> Sampling:
    return msgspec.structs.replace(GREEDY, **fields)


@pytest.mark.parametrize(
    ("parameters", "sampling"),
    [
        # Those of every rolling batch.
        ({}, GREEDY),
        ({"do_sample": False, "temperature": 0.5}, GREEDY),
        ({"do_sample": True}, drawn()),
        ({"do_sample": True, "temperature": 0}, GREEDY),
        ({"temperature": 0.5}, drawn(temperature=0.5)),
        ({"temperature": 0, "top_p": 0.5}, greedy(top_p=0.5)),
        ({"seed": 7}, greedy(seed=7)),
        ({"repetition_penalty": 1.5}, greedy(repetition_penalty=1.5)),
        ({"top_k": 5}, drawn(top_k=5)),
        ({"top_p": 0.5}, drawn(top_p=0.5)),
        # TensorRT-LLM's greedy decoding, also of a client that sets a temperature.
        ({"top_p": 0, "top_k": 0}, GREEDY),
        ({"top_p": 0, "top_k": 0, "temperature": 0.8}, GREEDY),
        ({"top_p": 0.0, "do_sample": True}, GREEDY),
        ({"max_new_tokens": 7}, greedy(max_tokens=7)),
        ({"max_new_tokens": None}, GREEDY),
        ({"details": True}, greedy(logprobs=0, end_token=True)),
        ({"return_full_text": True}, GREEDY),
        ({"stop_sequences": ["a", "b"]}, greedy(stop=("a", "b"))),
        ({"decoder_input_details": True}, greedy(logprobs=0, end_token=True, prompt_logprobs=0)),
        # Of LMI-Dist and vLLM.
        ({"typical_p": 0.5}, drawn(typical_p=0.5)),
        ({"ignore_eos_token": True}, greedy(ignore_eos=True)),
        ({"min_p": 0.1}, drawn(min_p=0.1)),
        ({"presence_penalty": 1, "frequency_penalty": -1}, greedy(presence_penalty=1, frequency_penalty=-1)),
        ({"n": 3, "do_sample": True}, drawn(n=3, logprobs=0, end_token=True)),
        ({"n": 2, "best_of": 3, "do_sample": True}, drawn(n=3, logprobs=0, end_token=True)),
        ({"stop_token_ids": [5]}, greedy(stop_ids=(5,))),
        ({"stop_sequences": ["a"], "include_stop_str_in_output": True}, greedy(stop=("a",), keep_stop=True)),
        ({"stop_token_ids": [5], "include_stop_str_in_output": True}, greedy(stop_ids=(5,), keep_stop=True)),
        ({"include_stop_str_in_output": True}, GREEDY),
        ({"logprobs": 3}, greedy(logprobs=3, end_token=True)),
        ({"prompt_logprobs": 2}, greedy(logprobs=0, end_token=True, prompt_logprobs=2)),
        # Of TensorRT-LLM, and TGI.
        ({"min_length": 4}, greedy(min_tokens=4)),
        ({"stop": "a"}, greedy(stop=("a",))),
        ({"stop": ["a", "b"]}, greedy(stop=("a", "b"))),
        ({"stop": []}, GREEDY),
        ({"top_n_tokens": 2}, greedy(logprobs=2, end_token=True)),
        # What changes nothing needs nothing of the model.
        (
            {
                "temperature": None,
                "repetition_penalty": 1.0,
                "top_k": -1,
                "top_p": 1.0,
                "typical_p": 1.0,
                "min_p": 0.0,
                "presence_penalty": 0,
                "frequency_penalty": 0,
                "n": 1,
                "best_of": 1,
                "num_beams": 1,
                "length_penalty": 1.0,
                "early_stopping": False,
                "skip_special_tokens": True,
                "logprobs": None,
                "spaces_between_special_tokens": True,
                "ignore_eos_token": False,
                "top_n_tokens": 0,
                "stop": False,
            },
            GREEDY,
        ),
    ],
)
def test_sampling(parameters: dict[str, Any], sampling: Sampling) -> None:
    assert parse(**parameters) == TextCompletionRequest(prompt="hi", model="raw", raw=True, sampling=sampling)


def test_all_tokens_are_asked_of_a_model_that_may_choose_fewer_by_itself() -> None:
    whole: dict[str, Any] = {"do_sample": True, "top_p": 1.0, "top_k": -1}
    assert parse(model="whole", **whole).sampling == drawn(top_p=1.0, top_k=0)
    assert parse(model="whole", do_sample=True).sampling == drawn()
    assert parse(model="whole", top_p=0, top_k=0).sampling == greedy(top_k=0)
    assert parse(**whole).sampling == drawn()


def test_the_prompt() -> None:
    assert parse(truncate=5).max_prompt_tokens == 5
    assert parse(model="chat").raw is False
    streamed = parse(stream=True)
    assert (streamed.streaming, streamed.sampling) == (True, greedy(logprobs=0, end_token=True))
    assert parse(output_formatter="sse").streaming is True
    assert parse(output_formatter="json", stream=True).streaming is False
    assert parse(output_formatter="none", stream=True).streaming is True
    assert parse(model="beams", length_penalty=0.5).sampling == greedy(length_penalty=0.5)


def test_ping_says_whether_any_model_can_be_asked() -> None:
    nobody = Catalogue((ROUTE,), lambda queue: [], {})
    for catalogue, status, word in ((CATALOGUE, 200, "Healthy"), (nobody, 503, "Unhealthy")):
        answer = LMI.parse(Call("ping", catalogue, {}, {}, {}, "r"))
        assert isinstance(answer, Answer)
        assert (answer.status, json.loads(answer.body)) == (status, {"status": word})


def test_which_model_and_adapter() -> None:
    assert ask({"inputs": "hi"}).route is ROUTE
    assert ask({"inputs": "hi", "model": "raw"}, model="chat").route is CHAT
    assert ask({"inputs": "hi", "adapters": "lora"}).request.adapter == "lora"
    header = {"X-Amzn-SageMaker-Adapter-Identifier": "lora"}
    assert ask({"inputs": "hi"}, headers=header).request.adapter == "lora"
    batch = ask({"inputs": ["a", "b"], "adapters": ["x", None]}).request
    assert [request.adapter for request in batch.requests] == ["x", None]
    with pytest.raises(NotFound, match="there is no model 'nobody'"):
        ask({"inputs": "hi"}, model="nobody")


def test_what_is_ignored_is_said() -> None:
    parameters = {
        "num_beams": 2,
        "early_stopping": True,
        "length_penalty": 0.5,
        "bad_sequences": ["a"],
        "stop": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "top_m": 1,
    }
    asked = ask({"inputs": "hi", "parameters": parameters, "cached_prompt": "x"})
    assert asked.request.sampling == GREEDY
    assert asked.headers["X-Tokengrid-Ignored"].split(", ") == [
        "cached_prompt",
        *[f"parameters.{name}" for name in sorted(parameters)],
    ]
    assert "X-Tokengrid-Ignored" not in ask({"inputs": "hi"}).headers


@pytest.mark.parametrize(
    ("body", "ignored"),
    [
        ({"parameters": {"logprobs": 1, "details": True}}, None),
        ({"parameters": {"logprobs": 1, "output_formatter": "json_chat"}}, None),
        ({"parameters": {"top_n_tokens": 1, "output_formatter": "sse_chat"}}, None),
        ({"parameters": {"logprobs": 0}}, None),
        ({"parameters": {"logprobs": 1}}, "parameters.logprobs"),
        ({"parameters": {"top_n_tokens": 1, "details": True}, "stream": True}, "parameters.top_n_tokens"),
        ({"parameters": {"logprobs": 1, "output_formatter": "3p"}}, "parameters.logprobs"),
        ({"parameters": {"logprobs": 1}, "inputs": ["hi"]}, "parameters.logprobs"),
    ],
)
def test_alternatives_that_no_part_of_the_answer_tells_are_ignored(body: dict[str, Any], ignored: str | None) -> None:
    assert ask({"inputs": "hi", **body}).headers.get("X-Tokengrid-Ignored") == ignored


def test_several_texts_are_a_batch() -> None:
    asked = ask({"inputs": ["a", "b"], "parameters": {"seed": 1}})
    requests = tuple(
        TextCompletionRequest(prompt=text, model="raw", raw=True, sampling=greedy(seed=1)) for text in "ab"
    )
    assert (asked.request, asked.streaming) == (Batch(requests, independent=True), False)
    # Parameters may be long, and are not read again for each text.
    assert asked.request.requests[0].sampling is asked.request.requests[1].sampling
    assert ask({"inputs": ["a"], "stream": True}).streaming is True
    assert ask({"inputs": ["a"], "parameters": {"output_formatter": "jsonlines"}}).streaming is True
    dynamic = LMI.configure(GatewayConfig(doors={"lmi": LmiConfig(rolling_batch=False)}))
    assert isinstance(ask({"inputs": "a"}, dynamic).request, Batch)
    with pytest.raises(BadRequest, match=r"^parameters\.details: a dynamic batch has no details; leave it out$"):
        ask({"inputs": "a", "parameters": {"details": True}}, dynamic)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"inputs": "hi", "parameters": {"top_p": 5}}, r"<= 1.0 - at `\$.parameters.top_p`"),
        ({"inputs": "hi", "parameters": {"max_new_tokens": 0}}, r"at `\$.parameters.max_new_tokens`"),
        ({"inputs": "hi", "parameters": {"n": 2}}, "parameters.n: .* set do_sample, or n to 1"),
        ({"inputs": "hi", "parameters": {"best_of": 2}}, "parameters.best_of: .* set do_sample, or best_of to 1"),
        (
            {"inputs": "hi", "parameters": {"n": 2, "do_sample": True}, "stream": True},
            "parameters.n cannot be streamed",
        ),
        ({"inputs": "hi", "parameters": {"n": 3, "best_of": 2, "do_sample": True}}, "best_of must be at least n"),
        ({"inputs": "hi", "parameters": {"stop_sequences": [""]}}, "none of them may be empty"),
        ({"inputs": "hi", "parameters": {"output_formatter": "xml"}}, "no formatter 'xml'; there are: json, jsonlines"),
        ({"inputs": "hi", "model": "chat", "parameters": {"truncate": 5}}, "takes no raw text"),
        ({"inputs": "hi", "model": "old", "parameters": {"seed": 5}}, "the model can't do this: seed;"),
        ({"inputs": ["hi"], "parameters": {"details": True}}, "parameters.details: a list of inputs has no details"),
        ({"inputs": ["hi"], "parameters": {"prompt_logprobs": 0}}, "parameters.prompt_logprobs: a list of inputs"),
        ({"inputs": ["hi"], "parameters": {"decoder_input_details": True}}, "parameters.decoder_input_details: a list"),
        (
            {"inputs": ["hi"], "parameters": {"n": 2, "do_sample": True}},
            "parameters.n: .* one answer for each text; send one",
        ),
        ({"inputs": ["hi"], "parameters": {"best_of": 2, "do_sample": True}}, "parameters.best_of: a list of inputs"),
        (
            {"inputs": ["hi"], "parameters": {"output_formatter": "sse"}},
            "a list of inputs has json and jsonlines alone",
        ),
        ({"inputs": "hi", "model": "raw:a", "adapters": "b"}, "the model's name has another adapter"),
    ],
)
def test_what_is_refused(body: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        ask(body)


def test_a_number_beyond_all_numbers_is_told_by_its_field() -> None:
    with pytest.raises(BadRequest, match=r"out of range - at `\$\.parameters\.temperature`"):
        read_invocation(b'{"inputs": "hi", "parameters": {"temperature": 1e999}}')


@pytest.mark.parametrize("name", ["nothing", "json:nothing", "no_such_module:f", "math:pi"])
def test_a_formatter_that_does_not_exist(name: str) -> None:
    for field in ("output_formatter", "input_formatter"):
        config = GatewayConfig(doors={"lmi": msgspec.convert({field: name}, LmiConfig)})
        with pytest.raises(BadRequest) as caught:
            LMI.configure(config)
        assert caught.value.option == ("lmi", field)


@pytest.mark.parametrize(
    ("field", "arguments"), [("input_formatter", "body and headers"), ("output_formatter", "step")]
)
def test_a_formatter_of_other_arguments(field: str, arguments: str) -> None:
    config = GatewayConfig(doors={"lmi": msgspec.convert({field: "os:getcwd"}, LmiConfig)})
    with pytest.raises(BadRequest, match=f'"os:getcwd" must be a function of {arguments}$') as caught:
        LMI.configure(config)
    assert caught.value.option == ("lmi", field)
    # Not every function of C tells its arguments.
    LMI.configure(GatewayConfig(doors={"lmi": msgspec.convert({field: "builtins:dict"}, LmiConfig)}))


def test_the_completions_of_openai_are_asked_by_their_key() -> None:
    asked = ask({"prompt": ["a", "b"], "max_tokens": 3}, model="chat")
    assert [(each.prompt, each.model) for each in asked.request.requests] == [("a", "chat"), ("b", "chat")]
    # `inputs` are LMI's, whatever stands beside them.
    assert ask({"inputs": "hi", "prompt": "a"}).headers["X-Tokengrid-Ignored"] == "prompt"


def test_the_chat_of_openai_is_asked_by_its_key() -> None:
    turns = [{"role": "user", "content": "hi"}]
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"messages": turns}, ""),
        ({"messages": turns, "model": None}, ""),
        ({"messages": turns, "model": "raw"}, "chat"),
    ]
    for body, model in bodies:
        asked = ask(body, model=model)
        assert asked.request.model == (model or "raw")
        assert asked.request.prompt == "hi"
    refused = LMI.refuse(BadRequest("no"), 400, Call("generate", CATALOGUE, {}, {}, {}, "r", b'{"messages":1}'))
    assert isinstance(refused, Answer)
    assert list(json.loads(refused.body)["error"]) == ["message", "type", "param", "code"]


def read_own(body: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
    return {"inputs": json.loads(body)["question"]}


def write_own(step: OutputStep) -> str:
    return step.text


@pytest.mark.parametrize("name", ["n", "best_of"])
def test_a_formatter_of_ones_own_writes_one_answer(name: str) -> None:
    door = LMI.configure(GatewayConfig(doors={"lmi": LmiConfig(output_formatter=f"{__name__}:write_own")}))
    parameters = {name: 2, "do_sample": True}
    with pytest.raises(BadRequest, match=f"parameters.{name}: this endpoint's output formatter writes one answer;"):
        ask({"inputs": "hi", "parameters": parameters}, door)
    request = ask({"inputs": "hi", "parameters": parameters | {"output_formatter": "none"}}, door).request
    assert request.sampling.n == 2


def test_a_model_has_settings_of_its_own() -> None:
    tables = {
        "rolling_batch": False,
        "models": {
            "chat": {"tgi_compat": True, "rolling_batch": True},
            "beams": {"input_formatter": f"{__name__}:read_own"},
        },
    }
    configured = LMI.configure(GatewayConfig(doors={"lmi": msgspec.convert(tables, LmiConfig)}))
    # A large body is parsed in another process.
    for door in (configured, pickle.loads(pickle.dumps(configured))):
        assert answer({"inputs": "hi"}, door) == [{"generated_text": ""}]
        for asked in (answer({"inputs": "hi"}, door, model="mine"), answer({"inputs": "hi", "model": "chat"}, door)):
            assert asked[0]["details"]["inputs"] == "hi"
        assert answer({"question": "hi"}, door, model="beams") == [{"generated_text": ""}]
        refused = {
            model: door.refuse(BadRequest("no"), 400, Call("generate", CATALOGUE, {}, {}, {}, "r", encode(body))).body
            for model, body in (("", HI), ("chat", {**HI, "model": "chat"}), ("gone", {**HI, "model": "gone"}))
        }
        assert b'"message"' in refused[""]
        assert refused["gone"] == refused[""]
        assert b'"generated_text"' in refused["chat"]


def test_a_model_without_such_a_formatter() -> None:
    tables = {"models": {"chat": {"output_formatter": "gone"}}}
    with pytest.raises(BadRequest) as raised:
        LMI.configure(GatewayConfig(doors={"lmi": msgspec.convert(tables, LmiConfig)}))
    assert raised.value.option == ("lmi", "models", "chat", "output_formatter")


def test_models_have_no_versions() -> None:
    path = {"model": "raw", "version": "1.0"}
    asked = LMI.parse(Call("generate", CATALOGUE, {}, path, {}, "r", encode({**HI, "new": 1})))
    assert isinstance(asked, Ask)
    assert asked.headers["X-Tokengrid-Ignored"] == "new, version"
