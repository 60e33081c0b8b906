"""Every shape of a native event, byte by byte: field names, their order, and which of them are left out."""

import pytest

from tg_gateway.dialects.native.services import SERVICES
from tg_schema import AgentResponse, ModelInfo, PromptResponse, TextCompletionResponse, Token, ToolCallDelta
from tg_schema.errors import RateLimited, TgError, Timeout
from tg_schema.response import Response

COMPLETION, PROMPT, AGENT = "text-completion", "prompt", "agent"
EVENTS: tuple[tuple[str, Response, bytes], ...] = (
    (COMPLETION, TextCompletionResponse(), b'{"response":"","end_of_stream":false}'),
    (
        COMPLETION,
        TextCompletionResponse(response="a", model="m"),
        b'{"response":"a","model":"m","end_of_stream":false}',
    ),
    (
        COMPLETION,
        TextCompletionResponse(response="é\n\u2028\0", end_of_stream=None),
        b'{"response":"\xc3\xa9\\n\xe2\x80\xa8\\u0000","end_of_stream":false}',
    ),
    (COMPLETION, TextCompletionResponse(reasoning="r"), b'{"response":"","end_of_stream":false,"reasoning":"r"}'),
    (
        COMPLETION,
        TextCompletionResponse(response="", in_token=0, out_token=0, end_of_stream=True),
        b'{"response":"","in_token":0,"out_token":0,"end_of_stream":true}',
    ),
    (
        COMPLETION,
        TextCompletionResponse(tokens=(Token(7, "a", -0.5, ((7, -0.5), (8, -1.5))), Token(8, "b"))),
        b'{"response":"","end_of_stream":false,"tokens":[{"id":7,"text":"a","logprob":-0.5,"top":[[7,-0.5],[8,-1.5]]},{"id":8,"text":"b","logprob":null,"top":[]}]}',
    ),
    (
        COMPLETION,
        TextCompletionResponse(tool_calls=(ToolCallDelta(0, "i", "n", '{"a"'), ToolCallDelta(0, arguments=":1}"))),
        b'{"response":"","end_of_stream":false,"tool_calls":[{"id":"i","name":"n","arguments":"{\\"a\\""},{"arguments":":1}"}]}',
    ),
    (
        COMPLETION,
        TextCompletionResponse(response="", models=(ModelInfo("m"), ModelInfo("n", "o")), end_of_stream=True),
        b'{"response":"","end_of_stream":true,"models":[{"id":"m"},{"id":"n","owned_by":"o"}]}',
    ),
    (
        COMPLETION,
        TextCompletionResponse(
            response="a",
            in_token=1,
            out_token=2,
            model="m",
            end_of_stream=True,
            finish_reason="stop",
            reasoning="r",
            tokens=(Token(1, "t"),),
            tool_calls=(ToolCallDelta(0, "i", "n", "{}"),),
            cached_token=3,
            reasoning_token=4,
            models=(ModelInfo("m"),),
        ),
        b'{"response":"a","in_token":1,"out_token":2,"model":"m","end_of_stream":true,"finish_reason":"stop","reasoning":"r","tokens":[{"id":1,"text":"t","logprob":null,"top":[]}],"tool_calls":[{"id":"i","name":"n","arguments":"{}"}],"cached_token":3,"reasoning_token":4,"models":[{"id":"m"}]}',
    ),
    (PROMPT, PromptResponse(), b'{"text":"","end_of_stream":false}'),
    (PROMPT, PromptResponse(text="a"), b'{"text":"a","end_of_stream":false}'),
    (
        PROMPT,
        PromptResponse(object="{}", model="m", end_of_stream=True),
        b'{"object":"{}","end_of_stream":true,"model":"m"}',
    ),
    (
        PROMPT,
        PromptResponse(None, "a", "{}", True, 1, 2, "m", "stop"),
        b'{"text":"a","object":"{}","end_of_stream":true,"in_token":1,"out_token":2,"model":"m","finish_reason":"stop"}',
    ),
    (
        AGENT,
        AgentResponse(),
        b'{"chunk_type":"answer","message_type":"answer","content":"","end_of_message":false,"end_of_dialog":false}',
    ),
    (
        AGENT,
        AgentResponse("thought", "a", message_id="d/1"),
        b'{"chunk_type":"thought","message_type":"thought","content":"a","end_of_message":false,"end_of_dialog":false,"message_id":"d/1"}',
    ),
    (
        AGENT,
        AgentResponse("answer", "a", None, None),
        b'{"chunk_type":"answer","message_type":"answer","content":"a","end_of_message":false,"end_of_dialog":false}',
    ),
    (
        AGENT,
        AgentResponse("action", "", True, False, None, "d/2", ("x", "y"), "t", "{}", "c"),
        b'{"chunk_type":"action","message_type":"action","content":"","end_of_message":true,"end_of_dialog":false,"message_id":"d/2","path":["x","y"],"tool":"t","arguments":"{}","call_id":"c"}',
    ),
    (
        AGENT,
        AgentResponse("answer", "a", True, True, None, "d/3", (), None, None, None, 1, 2, "m", "stop"),
        b'{"chunk_type":"answer","message_type":"answer","content":"a","end_of_message":true,"end_of_dialog":true,"message_id":"d/3","in_token":1,"out_token":2,"model":"m","finish_reason":"stop"}',
    ),
)

FAILURES = (
    ("text-completion", Timeout("late"), b'{"error":{"type":"timeout","message":"late"},"end_of_stream":true}'),
    (
        "text-completion",
        RateLimited("many", retry_after=1.5),
        b'{"error":{"type":"rate-limited","message":"many","retry_after":1.5},"end_of_stream":true}',
    ),
    ("prompt", Timeout("late"), b'{"error":{"type":"timeout","message":"late"},"end_of_stream":true}'),
    (
        "prompt",
        RateLimited("many", retry_after=1.5),
        b'{"error":{"type":"rate-limited","message":"many","retry_after":1.5},"end_of_stream":true}',
    ),
    (
        "agent",
        Timeout("late"),
        b'{"content":"late","error":{"type":"timeout","message":"late"},"chunk_type":"error","message_type":"error","end_of_message":true,"end_of_dialog":true}',
    ),
    (
        "agent",
        RateLimited("many", retry_after=1.5),
        b'{"content":"many","error":{"type":"rate-limited","message":"many","retry_after":1.5},"chunk_type":"error","message_type":"error","end_of_message":true,"end_of_dialog":true}',
    ),
)


@pytest.mark.parametrize(("service", "record", "event"), EVENTS)
def test_events(service: str, record: Response, event: bytes) -> None:
    assert SERVICES[service].event(record) == event


@pytest.mark.parametrize(("service", "error", "event"), FAILURES)
def test_failures(service: str, error: TgError, event: bytes) -> None:
    assert SERVICES[service].failure(error) == event


def test_a_whole_answer_of_several_records_has_them_as_parts() -> None:
    records = (
        TextCompletionResponse(reasoning="hm", signature="s", response="a", model="m"),
        TextCompletionResponse(index=1, response="x", model="m"),
        TextCompletionResponse(reasoning="so", response="b", model="m", finish_reason="stop"),
        TextCompletionResponse(index=1, response="y", finish_reason="length"),
        TextCompletionResponse(model="m", in_token=1, out_token=2, end_of_stream=True),
    )
    assert SERVICES[COMPLETION].whole(records) == (
        b'{"response":"ab","in_token":1,"out_token":2,"model":"m","end_of_stream":true,"finish_reason":"stop",'
        b'"reasoning":"hmso","parts":['
        b'{"response":"a","model":"m","end_of_stream":false,"reasoning":"hm","signature":"s"},'
        b'{"response":"b","model":"m","end_of_stream":false,"finish_reason":"stop","reasoning":"so"},'
        b'{"response":"xy","in_token":1,"out_token":2,"model":"m","end_of_stream":true,"finish_reason":"length",'
        b'"index":1}]}'
    )
