"""Numbers that are none: sampling out of its range at every door, and what a lying provider counts and says."""

import json
from contextlib import aclosing

import msgspec
import pytest
from prometheus_client import REGISTRY
from typing_extensions import override

from tests.fakes.scripted_llm import ScriptedLlm
from tests.flow.open_gateway import Opened
from tests.flow.test_llm_service import Scripted
from tg_base.llm import LlmChunk
from tg_base.llm.request_plan import check_completion
from tg_schema import (
    COMMON_FEATURES,
    FinishReason,
    ModelInfo,
    Sampling,
    TextCompletionRequest,
    TextCompletionResponse,
    Token,
    ToolCallDelta,
)
from tg_schema.errors import BadRequest, ProtocolError, SchemaViolation, Unavailable

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


STOP = LlmChunk(finish_reason="stop")
PERSON = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


async def answer(
    *steps: LlmChunk | Unavailable, request: TextCompletionRequest | None = None
) -> list[TextCompletionResponse]:
    service = Scripted(steps)
    service.features = COMMON_FEATURES
    async with aclosing(service.on_request(request or TextCompletionRequest(prompt="p"))) as stream:
        return [record async for record in stream]


def asked(*, streaming: bool, form: str = "schema") -> TextCompletionRequest:
    if form == "json":
        return TextCompletionRequest(prompt="p", streaming=streaming, response_format="json")
    return TextCompletionRequest(prompt="p", streaming=streaming, schema=PERSON)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("wrong", [HUGE, -1, 2**53 + 1])
async def test_a_count_that_is_none_is_unknown(wrong: int, *, streaming: bool) -> None:
    lie = LlmChunk(in_token=wrong, out_token=wrong, cached_token=wrong, reasoning_token=wrong)
    request = TextCompletionRequest(prompt="p", streaming=streaming)
    last = (await answer(LlmChunk("Hi"), STOP, lie, request=request))[-1]
    assert (last.in_token, last.out_token, last.cached_token, last.reasoning_token) == (None, None, None, None)
    assert (last.finish_reason, last.end_of_stream) == ("stop", True)
    assert (await answer(LlmChunk("Hi", in_token=wrong, finish_reason="stop"), LlmChunk(out_token=2)))[0].out_token == 2
    assert REGISTRY.get_sample_value("tokengrid_tokens_total", {"model": "scripted", "direction": "out"}) != HUGE


@pytest.mark.parametrize(
    "lie",
    [
        LlmChunk(tool_calls=(ToolCallDelta(HUGE, "1", "f"),)),
        LlmChunk(tool_calls=(ToolCallDelta(-1, "1", "f"),)),
        LlmChunk("x", tokens=(Token(HUGE, "x"),)),
        LlmChunk("x", tokens=(Token(1, "x", top=((HUGE, 0.0),)),)),
    ],
)
async def test_a_number_that_is_none_is_one_typed_error(lie: LlmChunk) -> None:
    with pytest.raises(ProtocolError):
        await answer(LlmChunk("Hi"), lie, STOP)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(
    "after",
    [
        (LlmChunk(" and more"), LlmChunk(in_token=3)),
        (LlmChunk(reasoning="hm", in_token=3), LlmChunk(tool_calls=(ToolCallDelta(0, "1", "f"),))),
        (LlmChunk(" more", in_token=3, finish_reason="length"),),
        (LlmChunk(in_token=3), Unavailable("down")),
        (LlmChunk(in_token=3), LlmChunk(tool_calls=(ToolCallDelta(HUGE),))),
    ],
    ids=["text", "thought and call", "another end", "an error", "nonsense"],
)
async def test_what_follows_the_end_makes_the_answer_neither_less_nor_more(
    after: tuple[LlmChunk | Unavailable, ...], *, streaming: bool
) -> None:
    request = TextCompletionRequest(prompt="p", streaming=streaming)
    records = await answer(LlmChunk("Hi"), LlmChunk("!", finish_reason="stop"), *after, request=request)
    (whole,) = TextCompletionResponse.join(records)
    assert (whole.response, whole.reasoning, whole.tool_calls) == ("Hi!", None, ())
    assert (whole.finish_reason, whole.in_token, whole.error) == ("stop", 3, None)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("form", ["schema", "json"])
async def test_an_answer_in_its_form_is_passed_on(form: str, *, streaming: bool) -> None:
    steps = (LlmChunk('{"name": '), LlmChunk('"Ann"}'), STOP, LlmChunk(out_token=4))
    (whole,) = TextCompletionResponse.join(await answer(*steps, request=asked(streaming=streaming, form=form)))
    assert (whole.response, whole.out_token, whole.finish_reason) == ('{"name": "Ann"}', 4, "stop")


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize(("text", "form"), [("Ann", "schema"), ('{"name": 1}', "schema"), ("", "json"), ("a", "json")])
async def test_a_broken_promise_is_told(text: str, form: str, *, streaming: bool) -> None:
    with pytest.raises(SchemaViolation):
        await answer(LlmChunk(text), STOP, request=asked(streaming=streaming, form=form))


async def test_a_fence_is_taken_off_where_nothing_has_been_told_yet() -> None:
    fenced = LlmChunk('```json\n{"name": "Ann"}\n```')
    assert [record.response for record in await answer(fenced, STOP, request=asked(streaming=False))] == [
        '{"name": "Ann"}'
    ]
    with pytest.raises(SchemaViolation, match="around"):
        await answer(fenced, STOP, request=asked(streaming=True))


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("reason", ["length", "content_filter", "tool_calls"])
async def test_an_answer_that_is_not_finished_says_so_itself(reason: FinishReason, *, streaming: bool) -> None:
    steps = (LlmChunk('{"na'), LlmChunk(finish_reason=reason))
    (whole,) = TextCompletionResponse.join(await answer(*steps, request=asked(streaming=streaming)))
    assert (whole.response, whole.finish_reason) == ('{"na', reason)


async def test_a_list_with_a_time_that_is_none_is_one_typed_error() -> None:
    class Lists(Scripted):
        @override
        async def models(self) -> tuple[ModelInfo, ...]:
            return (ModelInfo("a", created=HUGE),)

    with pytest.raises(ProtocolError):
        async with aclosing(Lists(()).on_request(TextCompletionRequest(operation="list-models"))) as stream:
            await anext(stream)
