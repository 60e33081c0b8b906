"""Sampling out of its range: one bad-request at every door, before any provider, and never a defect."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import msgspec
import pytest

from tests.fakes.scripted_llm import ScriptedLlm
from tests.flow.open_gateway import Opened, open_gateway
from tg_base.llm.request_plan import check_completion
from tg_schema import Sampling, TextCompletionRequest
from tg_schema.errors import BadRequest

HUGE = int("9" * 400)
WRONG = [
    ("temperature", -5),
    ("temperature", 1e300),
    ("temperature", HUGE),
    ("top_p", -0.1),
    ("top_p", 1.5),
    ("top_k", -2),
    ("top_k", 2**31),
    ("top_k", HUGE),
    ("max_tokens", 0),
    ("max_tokens", -1),
    ("max_tokens", HUGE),
    ("seed", HUGE),
    ("seed", -HUGE),
    ("presence_penalty", 3),
    ("frequency_penalty", -2.5),
    ("logprobs", -1),
    ("logprobs", HUGE),
]
RIGHT = Sampling(
    temperature=0, top_p=1, top_k=-1, max_tokens=1, seed=-1, presence_penalty=-2, frequency_penalty=2, logprobs=0
)


@pytest.fixture
async def it() -> AsyncIterator[Opened]:
    async with open_gateway() as opened:
        yield opened


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(("field", "value"), WRONG)
async def test_the_gateway_refuses_it(it: Opened, field: str, value: float, *, streaming: bool) -> None:
    body = json.dumps({"prompt": "1", "streaming": streaming, "sampling": {field: value}})
    async with it.http.post("api/v1/text-completion", data=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["type"] == "bad-request"
    assert field in error["message"] or "range" in error["message"]
    assert it.llm.requests == []


@pytest.mark.parametrize(("field", "value"), WRONG)
async def test_no_provider_is_asked(field: str, value: float) -> None:
    llm = ScriptedLlm("x")
    request = TextCompletionRequest(prompt="p", sampling=msgspec.structs.replace(Sampling(), **{field: value}))
    with pytest.raises(BadRequest, match=rf"sampling\.{field}|range"):
        async with aclosing(llm.on_request(request)) as stream:
            await anext(stream)
    assert llm.requests == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(BadRequest):
        check_completion(TextCompletionRequest(prompt="p", sampling=Sampling(temperature=value)))


def test_the_ends_of_the_ranges_are_taken() -> None:
    check_completion(TextCompletionRequest(prompt="p", sampling=RIGHT))


async def test_any_other_absurd_number_is_no_defect(it: Opened) -> None:
    for body in (
        '{"prompt": "1", "schema": {"maximum": ' + str(HUGE) + "}}",
        '{"prompt": "1", "tools": [{"name": "f", "parameters": {"maximum": ' + str(HUGE) + "}}]}",
        '{"prompt": "1", "sampling": {"top_k": ' + "9" * 5000 + "}}",
    ):
        async with it.http.post("api/v1/text-completion", data=body) as response:
            assert response.status in {200, 400}
