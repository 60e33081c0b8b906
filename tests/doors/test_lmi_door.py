"""LMI's door over HTTP: routes, shapes of answers and refusals, dynamic batches, and its clients."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config as BotoConfig
from botocore.exceptions import ClientError

from tests.fakes.raw_llm import ERRORS, FEATURES, RawLlm
from tests.flow.open_gateway import Opened, open_gateway, until_listed
from tests.installed_package import install_package
from tg_base.config import GatewayConfig, read_config
from tg_doors import LmiConfig
from tg_schema import COMMON_FEATURES
from tg_schema.errors import TgError, Timeout, TooLarge

EXAMPLE = Path(__file__).parents[2] / "examples" / "lmi"
HELLO = {"inputs": "say hello"}
FAILED = {"finish_reason": "error", "generated_tokens": None, "inputs": None}


@asynccontextmanager
async def door(llm: RawLlm | None = None, lmi: LmiConfig | None = None) -> AsyncIterator[Opened]:
    """A gateway that knows who serves."""
    config = GatewayConfig(port=0, drain=0.05, doors={"lmi": lmi or LmiConfig()})
    async with open_gateway(config, instead=llm or RawLlm()) as it:
        await until_listed(it.http)
        yield it


async def post(it: Opened, body: object, path: str = "/invocations", **headers: str) -> tuple[int, str, Any]:
    """Status, content type, and the JSON of the body, or of all lines or events."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with it.http.post(path, data=data, headers=headers) as response:
        content = (await response.read()).decode()
        kind = response.content_type
        if kind == "text/event-stream":
            return response.status, kind, [event.removeprefix("data: ") for event in content.split("\n\n")[:-1]]
        if kind == "application/json":
            return response.status, kind, json.loads(content)
        return response.status, kind, [json.loads(line) for line in content.splitlines()]


async def test_each_route_and_key() -> None:
    turns = {"messages": [{"role": "user", "content": "say hello"}]}
    async with door() as it:
        for path in ("/invocations", "/predictions/counting", "/models/counting/invoke"):
            assert await post(it, HELLO, path) == (200, "application/json", {"generated_text": "Hello €"})
            status, _, chat = await post(it, turns, path)
            assert (status, chat["choices"][0]["message"]["content"]) == (200, "Hello €")
            _, _, completion = await post(it, {"prompt": "say hello"}, path)
            assert (completion["object"], completion["choices"][0]["text"]) == ("text_completion", "Hello €")
            _, kind, events = await post(it, {**turns, "stream": True}, path)
            assert (kind, events[-1]) == ("text/event-stream", "[DONE]")
        status, _, refused = await post(it, {"messages": []})
        assert (status, refused["error"]["type"]) == (400, "invalid_request_error")
        async with it.http.get("/ping") as response:
            assert (response.status, await response.json()) == (200, {"status": "Healthy"})


async def test_the_ways_of_an_answer() -> None:
    async with door() as it:
        _, kind, lines = await post(it, {**HELLO, "stream": True})
        assert (kind, len(lines), lines[-1]["generated_text"]) == ("application/jsonlines", 6, "Hello €")
        assert list(lines[0]["token"]) == ["id", "text", "log_prob"]
        _, kind, events = await post(it, {**HELLO, "parameters": {"output_formatter": "sse"}})
        assert (kind, len(events)) == ("text/event-stream", 6)
        _, kind, chunks = await post(it, {**HELLO, "parameters": {"output_formatter": "jsonlines_chat"}})
        assert (kind, chunks[-1]["choices"][0]["finish_reason"]) == ("application/jsonlines", "stop")
        async with it.http.post("/invocations", json={**HELLO, "parameters": {"output_formatter": "none"}}) as response:
            assert (response.content_type, await response.text()) == ("text/plain", "Hello €")
    async with door(lmi=LmiConfig(tgi_compat=True)) as it:
        _, kind, events = await post(it, {**HELLO, "stream": True})
        last = json.loads(events[-1])
        assert (kind, list(last["token"])) == ("text/event-stream", ["id", "text", "logprob", "special"])
        assert last["details"] == {"finish_reason": "eos_token", "generated_tokens": 6, "inputs": "say hello"}
        _, _, (whole,) = await post(it, HELLO)
        assert list(whole["details"]) == ["finish_reason", "generated_tokens", "inputs", "tokens"]
        assert await post(it, {**HELLO, "parameters": {"details": False}}) == (
            *(200, "application/json"),
            [{"generated_text": "Hello €"}],
        )
    async with door(lmi=LmiConfig(rolling_batch=False, output_formatter="sse")) as it:
        assert await post(it, HELLO) == (200, "application/json", [{"generated_text": "Hello €"}])
    async with door(lmi=LmiConfig(rolling_batch=False, output_formatter="jsonlines")) as it:
        _, kind, lines = await post(it, HELLO)
        assert (kind, "".join(line["outputs"][0] for line in lines)) == ("application/jsonlines", "Hello €")
        _, kind, _ = await post(it, {**HELLO, "parameters": {"output_formatter": "json"}})
        assert kind == "application/json"
    async with door(lmi=LmiConfig(output_formatter="jsonlines")) as it:
        _, _, refused = await post(it, {**HELLO, "parameters": {"n": 0}})
        assert list(refused) == LINE


async def test_a_text_that_fails_does_not_fail_its_neighbours() -> None:
    texts = ["say hello", "down", "cut", *["say hello"] * 30]
    async with door() as it:
        status, _, answers = await post(it, {"inputs": texts})
        assert (status, len(answers)) == (200, len(texts))
        failed = [
            {"code": 424, "message": "invoke handler failure", "error": ERRORS[each].message} for each in texts[1:3]
        ]
        assert answers[1:3] == failed
        assert [answers[0], *answers[3:]] == [{"generated_text": "Hello €"}] * 31
        _, kind, lines = await post(it, {"inputs": texts, "stream": True})
        assert kind == "application/jsonlines"
        whole = ["".join(line["outputs"][place] for line in lines) for place in range(len(texts))]
        assert whole == ["Hello €", "", "Hel", *["Hello €"] * 30]
        errors = [each for line in lines for each in line.get("errors", []) if each]
        assert sorted(errors) == sorted([ERRORS["down"].message, ERRORS["cut"].message])
        assert await post(it, {"inputs": ["cut", "cut"]}) == (424, "application/json", failed[1])
        assert (await post(it, {"inputs": ["busy"]}))[0] == 503
        # A batch of one is a list of one.
        assert await post(it, {"inputs": ["say hello"]}) == (200, "application/json", [{"generated_text": "Hello €"}])


async def test_a_text_that_cannot_be_asked_does_not_fail_its_neighbours() -> None:
    async with door(RawLlm(features=FEATURES - {"adapter"})) as it:
        for before in (0, 20):
            adapters = [*[None] * before, "lora", None]
            status, _, answers = await post(it, {"inputs": ["say hello"] * len(adapters), "adapters": adapters})
            assert (status, len(answers)) == (200, before + 2)
            refused = answers.pop(before)
            assert (refused["code"], "the model can't do this: adapter (adapters);" in refused["error"]) == (424, True)
            assert answers == [{"generated_text": "Hello €"}] * (before + 1)
        _, _, answers = await post(it, {"inputs": ["say hello", "", "say hello"]})
        empty = {"code": 424, "message": "invoke handler failure", "error": "the prompt is empty; raw needs its text"}
        assert answers == [{"generated_text": "Hello €"}, empty, {"generated_text": "Hello €"}]
        status, _, refused = await post(it, {"inputs": ["a", "b"], "adapters": "lora"})
        assert (status, "adapter" in refused["error"]) == (424, True)


PAYLOAD = ["error", "code"]
FRONT = ["code", "type", "message"]
WHOLE = ["generated_text", "details", "error", "code"]
LINE = ["token", "generated_text", "details"]
BATCH = ["code", "message", "error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "keys"),
    [
        ("/invocations", b"", 424, PAYLOAD),
        ("/invocations", b"{", 424, PAYLOAD),
        ("/invocations", b"[]", 424, PAYLOAD),
        ("/invocations", b"\xff", 424, PAYLOAD),
        ("/invocations", {}, 424, PAYLOAD),
        ("/invocations", {"inputs": ""}, 424, PAYLOAD),
        ("/invocations", {"inputs": 5}, 424, PAYLOAD),
        ("/invocations", {"inputs": []}, 424, BATCH),
        ("/invocations", {"inputs": ["", ""]}, 424, BATCH),
        ("/invocations", {"inputs": ["a", 5]}, 424, BATCH),
        ("/invocations", {"inputs": ["a"] * 1025}, 424, BATCH),
        ("/invocations", {"inputs": "a", "parameters": []}, 424, PAYLOAD),
        ("/invocations", {"inputs": "a", "stream": 1}, 424, PAYLOAD),
        ("/invocations", {"inputs": "a", "adapters": ["x", "y"]}, 424, PAYLOAD),
        ("/invocations", {"inputs": "a", "parameters": {"temperature": "hot"}}, 400, WHOLE),
        ("/invocations", {"inputs": "a", "parameters": {"top_k": 2**40}}, 400, WHOLE),
        ("/invocations", {"inputs": "a", "parameters": {"output_formatter": "xml"}}, 400, WHOLE),
        ("/invocations", {"inputs": "a", "parameters": {"min_p": 0.5}}, 400, WHOLE),
        ("/invocations", {"inputs": "a", "stream": True, "parameters": {"n": 0}}, 400, LINE),
        ("/invocations", {"inputs": "a", "parameters": {"n": 0, "output_formatter": "jsonlines"}}, 400, LINE),
        ("/invocations", {"inputs": "cut now", "parameters": {"n": 0, "output_formatter": "sse"}}, 400, LINE),
        (
            "/invocations",
            {"inputs": "a", "stream": True, "parameters": {"n": 0, "output_formatter": "json"}},
            400,
            WHOLE,
        ),
        ("/invocations", {"inputs": ["a"], "parameters": {"details": True}}, 424, BATCH),
        ("/invocations", {"inputs": "a", "model": "nobody"}, 404, FRONT),
        ("/predictions/nobody", HELLO, 404, FRONT),
        ("/predictions", HELLO, 404, FRONT),
        ("/invocations", {"inputs": "busy"}, 503, FRONT),
        ("/invocations", {"inputs": "down"}, 503, FRONT),
        ("/invocations", {"inputs": "cut"}, 424, WHOLE),
    ],
)
async def test_what_is_refused(path: str, body: object, status: int, keys: list[str]) -> None:
    async with door() as it:
        got, kind, answer = await post(it, body, path)
        assert (got, kind, list(answer)) == (status, "application/json", keys)
        told = answer.get("error") or answer.get("message") or answer["token"]["error_msg"]
        assert len(told) > 8
        if "code" in answer:
            assert answer["code"] == status
        if keys == WHOLE:
            assert (answer["generated_text"], answer["details"]) == ("", {**FAILED, "tokens": None})
        if keys == LINE:
            token = {"id": -1, "text": "", "log_prob": -1, "special_token": True, "error_msg": told}
            assert (answer["token"], answer["details"]) == (token, FAILED)
        assert (await post(it, HELLO))[0] == 200


@pytest.mark.parametrize(
    ("error", "status"), [(TooLarge("the prompt is too long"), 400), (Timeout("it is too slow"), 424)]
)
async def test_further_failures(error: TgError, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ERRORS, "fail", error)
    async with door() as it:
        got, _, answer = await post(it, {"inputs": "fail"})
        assert (got, list(answer), answer["error"], answer["code"]) == (status, WHOLE, error.message, status)


async def test_an_encoding_and_what_a_model_lacks() -> None:
    async with door() as it:
        got, _, answer = await post(it, HELLO, **{"Content-Encoding": "br"})
        assert (got, answer["type"]) == (415, "UnsupportedMediaTypeException")
    llm = RawLlm(features=COMMON_FEATURES - {"logprobs"})
    async with door(llm) as it:
        status, _, answer = await post(it, {**HELLO, "parameters": {"decoder_input_details": True}})
        assert (status, llm.requests) == (400, [])
        assert "the model can't do this: prompt_logprobs;" in answer["error"]
        # A model that tells no tokens has pieces of text.
        _, _, lines = await post(it, {**HELLO, "stream": True})
        assert {line["token"]["id"] for line in lines} == {-1}
        assert "".join(line["token"]["text"] for line in lines) == lines[-1]["generated_text"] == "Hello €"


async def test_curl_and_urllib() -> None:
    async with door() as it:
        url = f"{it.gateway.url}invocations"
        body = json.dumps({**HELLO, "stream": True, "parameters": {"details": True}})
        curl = await asyncio.create_subprocess_exec("curl", "-sN", url, "-d", body, stdout=asyncio.subprocess.PIPE)
        out, _ = await curl.communicate()
        assert json.loads(out.splitlines()[-1])["details"]["finish_reason"] == "eos_token"

        def read() -> list[str]:
            # As its users do, with its own content type; the gateway is asked from another thread.
            asked = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=20) as response:
                return [json.loads(line)["token"]["text"] for line in response]

        assert "".join((await asyncio.to_thread(read))[:-1]) == "Hello €"


def ask_by_boto3(url: str) -> tuple[Any, list[Any], Any]:
    """A whole answer, the lines of two streams, and the error of a request that is refused."""
    client = boto3.client(
        "sagemaker-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=BotoConfig(retries={"max_attempts": 0}),
    )
    with client.invoke_endpoint(EndpointName="counting", Body=json.dumps(HELLO), ContentType="application/json")[
        "Body"
    ] as body:
        answer = json.loads(body.read())
    lines = []
    for asked in (HELLO, {"inputs": "cut"}):
        streamed = client.invoke_endpoint_with_response_stream(
            EndpointName="counting", Body=json.dumps({**asked, "stream": True}), ContentType="application/json"
        )
        assert streamed["ContentType"] == "application/jsonlines"
        data = b"".join(part["PayloadPart"]["Bytes"] for part in streamed["Body"])
        lines.append([json.loads(line) for line in data.splitlines()])
    with pytest.raises(ClientError) as refused:
        client.invoke_endpoint(EndpointName="nobody", Body=json.dumps(HELLO), ContentType="application/json")
    client.close()
    return answer, lines, refused.value.response


async def test_boto3() -> None:
    async with door() as it:
        answer, (whole, cut), refused = await asyncio.to_thread(ask_by_boto3, it.gateway.url)
        assert answer == {"generated_text": "Hello €"}
        assert (len(whole), whole[-1]["generated_text"]) == (6, "Hello €")
        assert (cut[-1]["token"]["id"], cut[-1]["details"]) == (-1, FAILED)
        assert refused["ResponseMetadata"]["HTTPStatusCode"] == 404


@pytest.fixture
def house_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """examples/lmi, as if it were installed."""
    monkeypatch.syspath_prepend(EXAMPLE)
    points = (
        "[tokengrid.lmi_input_formatters]\nquestion = house_formats:read_question\n"
        "[tokengrid.lmi_output_formatters]\nwords = house_formats:write_words\n"
    )
    install_package(tmp_path, monkeypatch, "house-formats", points)


@pytest.mark.usefixtures("house_formats")
@pytest.mark.parametrize("named", [True, False])
async def test_formatters_of_ones_own(*, named: bool) -> None:
    example = read_config(EXAMPLE / "tokengrid.toml").gateway.door(LmiConfig)
    lmi = LmiConfig(input_formatter="question", output_formatter="words") if named else example
    llm = RawLlm()
    async with door(llm, lmi) as it:
        asked = {"question": "say hello", "words": 2}
        answer = [{"word": "Hel"}, {"word": "lo"}, {"answer": "Hello", "ended": "length", "words": 2}]
        for live in (False, True):
            assert await post(it, {**asked, "live": live}, **{"X-Seed": "7"}) == (200, "application/x-ndjson", answer)
        assert (llm.requests[0].streaming, llm.requests[1].streaming) == (False, True)
        assert [request.sampling.seed for request in llm.requests if request.sampling] == [7, 7]
        # What fails before its first byte has LMI's shape, after it the formatter's.
        _, _, lines = await post(it, {"question": "cut", "live": True})
        assert lines[-1] == {"problem": ERRORS["cut"].message}
        for body, sentence in (
            ({"question": ""}, "ask a question"),
            ({}, "not in the form"),
            ([], "not in the form"),
            (b"{", "not in the form"),
        ):
            status, _, refused = await post(it, body)
            assert (status, list(refused)) == (424, PAYLOAD)
            assert sentence in refused["error"]
