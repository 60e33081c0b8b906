"""Whatever stands in a body of Ollama's and MLC-LLM's clients: it is asked, answered, or refused by a sentence."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_completion_fuzz import CATALOGUE, LISTED, VALUES, mount_of, parse_or_refuse
from tg_gateway.dialects import Call

CALLS = [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}]
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
        optional={
            "content": VALUES | st.just("a"),
            "thinking": VALUES,
            "images": st.sampled_from([["iVBORw0KGgoAAAAN"], ["?"], "a"]),
            "tool_calls": st.just(CALLS) | VALUES,
            "tool_name": st.sampled_from(["f", "g", 1]),
        },
    ),
    max_size=4,
)
OPTIONS = st.dictionaries(st.sampled_from(["num_predict", "stop", "temperature", "seed", "mirostat"]), VALUES)
FORMS = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from(["json_object", "text"]), "schema": st.sampled_from(["{}", "{", {}, 1])}
)
DRAWN: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "messages": MESSAGES | VALUES,
    "options": OPTIONS | VALUES,
    "response_format": FORMS | VALUES,
    "debug_config": st.dictionaries(st.sampled_from(["ignore_eos", "a"]), VALUES) | VALUES,
}
"""Fields of a shape of their own."""
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "/api/chat": (
        "messages",
        "options",
        "tools",
        "format",
        "think",
        "stream",
        "logprobs",
        "top_logprobs",
        "keep_alive",
    ),
    "/api/generate": ("prompt", "options", "suffix", "system", "raw", "images", "template", "context", "format"),
    "/api/embed": ("input", "truncate", "dimensions", "options"),
    "/api/embeddings": ("prompt", "options"),
    "/api/show": ("name", "verbose"),
    "/mlc/v1/chat/completions": ("messages", "response_format", "debug_config", "user", "stream", "n", "top_logprobs"),
    "/mlc/v1/completions": ("prompt", "response_format", "debug_config", "user", "stream", "n", "echo"),
    "/mlc/v1/embeddings": ("input", "debug_config", "user"),
}


def read_sentence(path: str, body: bytes) -> str:
    """What a refusal says, in the door's shape."""
    told = json.loads(body)
    if path.startswith("/api"):
        return str(told["error"])
    return str(json.loads(told)["message"] if isinstance(told, str) else told["detail"][0]["msg"])


@pytest.mark.parametrize("path", FIELDS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_body_is_asked_answered_or_refused(path: str, data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(["small", "small:latest", "old", None, "other"]))
    names = data.draw(st.sets(st.sampled_from(FIELDS[path])))
    fields = {name: data.draw(DRAWN.get(name, LISTED | VALUES)) for name in sorted(names)}
    mount = mount_of(path)
    call = Call(mount.operation, CATALOGUE, {}, {}, {}, "r", json.dumps({"model": model, **fields}).encode())
    answer = parse_or_refuse(mount.dialect, call)
    if answer is not None:
        assert answer.status == 200 or (answer.status in {400, 404, 422} and read_sentence(path, answer.body))
