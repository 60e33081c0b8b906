"""Whatever stands in a body of completions, vectors and token ids: it is asked, or refused by a sentence."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tg_base.protocol import Presence, Route
from tg_gateway.dialects import Answer, Ask, Batch, Call, Catalogue, Mount
from tg_gateway.mounts import load_mounts
from tg_schema import TEXT_COMPLETION, encode
from tg_schema.errors import BadRequest, NotFound

MOUNTS = load_mounts()
ROUTE = Route("default", TEXT_COMPLETION, "q/default", "", model="small")
PLAIN = Route("plain", TEXT_COMPLETION, "q/plain", "", plain=True, model="old")
LIVE = Presence("p", ("q/default",), 1, 0, ("small",), features=("raw", "prompt_ids", "embed", "tokenize"))
CATALOGUE = Catalogue((ROUTE, PLAIN), lambda queue: [LIVE] if queue == "q/default" else [], {})
PATHS = ("/v1/completions", "/v1/embeddings", "/score", "/rerank", "/tokenize", "/detokenize")
SIMPLE = st.none() | st.booleans() | st.integers(-1, 9) | st.floats(allow_nan=False) | st.sampled_from(["", "a", "é"])
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "a"]), inner),
    max_leaves=5,
)
LISTED = st.sampled_from(["a", ["a", "b"], [1, 2], [[1], [2, 3]]])
FIELDS = {
    "/v1/completions": (
        "prompt",
        "max_tokens",
        "n",
        "best_of",
        "logprobs",
        "echo",
        "suffix",
        "stop",
        "stream",
        "logit_bias",
    ),
    "/v1/embeddings": ("input", "encoding_format", "dimensions", "truncate_prompt_tokens"),
    "/score": ("text_1", "text_2"),
    "/rerank": ("query", "documents", "top_n", "return_documents"),
    "/tokenize": ("prompt", "messages", "add_special_tokens", "return_token_strs", "tools"),
    "/detokenize": ("tokens",),
}


def mount_of(path: str) -> Mount:
    return next(mount for mount in MOUNTS if mount.path == path)


def parse_or_refuse(dialect: Any, call: Call) -> Answer | None:
    """The answer of a door that asks no model; None = models are asked what can be sent to them."""
    try:
        asked = dialect.parse(call)
    except (BadRequest, NotFound) as error:
        asked = dialect.refuse(error, error.status, call)
    if isinstance(asked, Answer):
        return asked
    assert isinstance(asked, Ask)
    requests = asked.request.requests if isinstance(asked.request, Batch) else (asked.request,)
    assert requests
    assert all(encode(request) for request in requests)
    return None


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_a_body_is_asked_or_refused(path: str, data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(["small", "old", None, "other"]))
    names = data.draw(st.sets(st.sampled_from(FIELDS[path])))
    body: dict[str, Any] = {"model": model, **{name: data.draw(LISTED | VALUES) for name in names}}
    mount = mount_of(path)
    answer = parse_or_refuse(
        mount.dialect, Call(mount.operation, CATALOGUE, {}, {}, {}, "r", json.dumps(body).encode())
    )
    if answer is not None:
        assert answer.status in {400, 404}
        assert json.loads(answer.body)["error"]["message"]
