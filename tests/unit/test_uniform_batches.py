"""Doors whose answer is one list -> their batches: one model must answer all of it."""

import json
from typing import Any

import pytest

from tg_base.protocol import Presence, Route
from tg_gateway.dialects import Ask, Batch, Call, Catalogue
from tg_gateway.mounts import load_mounts
from tg_schema import COMMON_FEATURES, TEXT_COMPLETION

ROUTE = Route("default", TEXT_COMPLETION, "q/default", "", model="m")
SERVING = [Presence("p", ("q/default",), 1, 0, ("m",), features=(*COMMON_FEATURES, "embed", "tokenize"))]
CATALOGUE = Catalogue((ROUTE,), lambda queue: SERVING, {})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": ["a", "b"]}),
        ("/score", {"text_1": "a", "text_2": ["b", "c"]}),
        ("/rerank", {"query": "a", "documents": ["b", "c"]}),
        ("/api/embed", {"input": ["a", "b"]}),
        ("/tokenize", {"prompt": "a"}),
    ],
)
def test_one_model_answers_a_whole_list(path: str, body: dict[str, Any]) -> None:
    mount = next(each for each in load_mounts() if each.path == path)
    data = json.dumps({"model": "m", **body}).encode()
    asked = mount.dialect.parse(Call(mount.operation, CATALOGUE, {}, {}, {}, "r", data))
    assert isinstance(asked, Ask)
    assert isinstance(asked.request, Batch)
    assert asked.request.uniform
