"""What no provider need look at, because the base has."""

from typing import Any

import pytest
from typing_extensions import override

from tg_base.llm.request_plan import GenerationPlan, check_completion
from tg_schema import ImagePart, Message, Sampling, TextCompletionRequest, Tool, ToolCall
from tg_schema.conversation import ReasoningPart
from tg_schema.errors import BadRequest

TOOLS = (Tool("weather"), Tool("clock"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "prompt is missing"),
        ({"messages": (Message("system", "s"),)}, "prompt is missing"),
        ({"prompt": "p", "response_format": "xml"}, "response_format"),
        ({"messages": (Message("user", (ImagePart(),)),)}, r"messages\[0\]: an image"),
        ({"messages": (Message("user", (ImagePart(data="QQ==", url="https://x/"),)),)}, r"messages\[0\]: an image"),
        ({"prompt": "p", "messages": (Message("user", tool_calls=(ToolCall("1", "f"),)),)}, "tool_calls belong"),
        ({"messages": (Message("user", "u"), Message("tool", "t"))}, r"messages\[1\]: .*tool_call_id"),
        ({"prompt": "p", "tools": (Tool("a"), Tool("a"))}, "tools: each"),
        ({"prompt": "p", "tools": (Tool(""),)}, "tools: each"),
        ({"prompt": "p", "tool_choice": "required"}, "tool_choice"),
        ({"prompt": "p", "tools": TOOLS, "tool_choice": "calendar"}, "tool_choice"),
        ({"prompt": "p", "tools": TOOLS, "tool_choice": "clock", "allowed_tools": ("weather",)}, "tool_choice"),
        ({"prompt": "p", "tools": TOOLS, "allowed_tools": ("calendar",)}, "allowed_tools"),
        ({"messages": (Message("user", (ReasoningPart("hm"),)),)}, r"messages\[0\]: thinking"),
        ({"prompt": "p", "prompt_ids": (1,)}, "prompt_ids replace prompt"),
        ({"messages": (Message("user", "u"),), "prompt_ids": (1,)}, "the whole prompt"),
        ({"raw": True}, "raw needs"),
        ({"raw": True, "prompt": "p", "system": "s"}, "leave out messages and system"),
        ({"raw": True, "prompt": "p", "tools": TOOLS}, "tools need a conversation"),
        ({"messages": (Message("user", "u"),), "echo": True}, "echo needs"),
        ({"prompt_ids": (1,), "suffix": "s"}, "suffix needs"),
        ({"prompt": "p", "max_prompt_tokens": 3}, "cuts a raw prompt"),
        ({"prompt": "p", "regex": "a+", "choice": ("a",)}, "one form"),
        ({"prompt": "p", "regex": "a+", "response_format": "json"}, "one form"),
        ({"prompt": "p", "choice": ("a",), "schema": {}}, "one form"),
        ({"prompt": "p", "choice": ("a", "")}, "choice"),
        ({"prompt": "p", "sampling": Sampling(n=3, best_of=2)}, "best_of must be at least"),
        ({"prompt": "p", "streaming": True, "sampling": Sampling(n=1, best_of=2)}, "best_of cannot be streamed"),
        ({"prompt": "p", "sampling": Sampling(stop=("",))}, "stop may have"),
        ({"prompt": "p", "sampling": Sampling(stop=("x",) * 65)}, "stop may have"),
        ({"prompt": "p", "sampling": Sampling(stop=("x" * 257,))}, "1 to 256 characters"),
        ({"prompt": "p", "sampling": Sampling(stop_ids=(1,) * 65)}, "stop_ids may have"),
        ({"prompt": "p", "sampling": Sampling(min_tokens=3, max_tokens=2)}, "min_tokens"),
        ({"prompt": "p", "sampling": Sampling(logit_bias={-1: 1.0})}, "logit_bias"),
        ({"prompt": "p", "sampling": Sampling(n=0)}, "wrong field"),
        ({"prompt": "p", "sampling": Sampling(n=129)}, "wrong field"),
        ({"operation": "embed", "prompt": "p"}, "texts is missing"),
        ({"operation": "embed", "texts": ("a",), "id_lists": ((1,),)}, "id_lists replace texts"),
        ({"operation": "embed", "texts": ("a", "")}, "an empty text cannot be embedded"),
        ({"operation": "embed", "id_lists": ((1,), ())}, "an empty text cannot be embedded"),
        ({"operation": "embed", "texts": ("a",) * 2049}, "at most 2048"),
        ({"operation": "detokenize", "prompt": "p"}, "prompt_ids is missing"),
        ({"operation": "score", "prompt": "p"}, "scored is missing"),
        ({"operation": "score", "scored": (1,)}, "prompt is missing"),
        ({"prompt": "p", "scored": (1,)}, 'belongs to the operation "score"'),
        ({"prompt": "p", "sampling": Sampling(end_token=True)}, "end_token needs"),
        ({"operation": "tokenize"}, "prompt is missing"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        check_completion(TextCompletionRequest(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "p"},
        {"prompt": "p", "tool_choice": "none"},
        {"messages": (Message("user", (ImagePart(data="QQ=="), ImagePart(url="https://x/"))),)},
        {"prompt": "p", "tools": TOOLS, "tool_choice": "clock"},
        {"prompt": "p", "tools": TOOLS, "tool_choice": "required", "response_format": "json"},
        {"messages": (Message("assistant", tool_calls=(ToolCall("1", "f"),)), Message("tool", tool_call_id="1"))},
        {"messages": (Message("user", "u"), Message("assistant", (ReasoningPart("hm"),)), Message("user", "v"))},
        {"prompt": "p", "tools": TOOLS, "tool_choice": "clock", "allowed_tools": ("clock",)},
        {"prompt_ids": (1, 2), "echo": True},
        {"prompt": "p", "raw": True, "max_prompt_tokens": 3},
        {"prompt": "p", "raw": True, "echo": True, "suffix": "s"},
        {"prompt": "p", "schema": {}, "response_format": "json"},
        {"prompt": "p", "streaming": True, "sampling": Sampling(n=2, best_of=2)},
        {"prompt": "p", "sampling": Sampling(n=2, best_of=3, min_tokens=2, max_tokens=2, stop=("x" * 256,) * 64)},
        {"operation": "embed", "texts": ("a",) * 2048},
        {"operation": "embed", "id_lists": ((1, 2), (3,))},
        {"operation": "detokenize", "prompt_ids": (1,)},
        {"operation": "score", "prompt": "p", "scored": (1,)},
        {"operation": "score", "prompt_ids": (1, 2), "sampling": Sampling(prompt_logprobs=0)},
        {"prompt": "p", "sampling": Sampling(end_token=True, logprobs=0)},
        {"operation": "tokenize", "texts": ("a",)},
    ],
)
def test_a_request_that_makes_sense_passes(fields: dict[str, Any]) -> None:
    check_completion(TextCompletionRequest(**fields))


class _Name(str):
    """Counts how often names are compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    @override
    def __eq__(self, other: object) -> bool:
        _Name.compared += 1
        return str.__eq__(self, str(other))


def test_thousands_of_tools_are_not_each_compared_with_all() -> None:
    names = tuple(_Name(number) for number in range(1000))
    tools = tuple(Tool(name) for name in names)
    request = TextCompletionRequest(prompt="p", tools=tools, allowed_tools=names[::-1], tool_choice="required")
    check_completion(request)
    plan = GenerationPlan.of(request, frozenset())
    assert len(plan.requests[0].tools) == 1000
    assert _Name.compared < 20 * len(names)
