"""Whatever stands in the body of an invocation: it is asked, or refused by a sentence in one of LMI's shapes."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tg_base.protocol import Presence, Route
from tg_doors.lmi import LMI
from tg_doors.lmi.parameters import LmiParameters
from tg_gateway.dialects import Answer, Ask, Batch, Call, Catalogue
from tg_schema import TEXT_COMPLETION, encode
from tg_schema.errors import BadRequest, NotFound

ROUTE = Route("default", TEXT_COMPLETION, "q/default", "", model="small")
PLAIN = Route("plain", TEXT_COMPLETION, "q/plain", "", plain=True, model="old")
LIVE = Presence("p", ("q/default",), 1, 0, ("small",), features=("raw", "logprobs"))
CATALOGUE = Catalogue((ROUTE, PLAIN), lambda queue: [LIVE] if queue == "q/default" else [], {})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 9)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "a", "é", "sse"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "a"]), inner, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from([*LmiParameters.__struct_fields__, "watermark"])
FIELDS = {
    "inputs": st.sampled_from(["a", ["a", "b"], ["a"]]) | VALUES,
    "parameters": st.dictionaries(NAMES, VALUES, max_size=4) | VALUES,
    "stream": st.booleans() | VALUES,
    "model": st.sampled_from(["small", "old", "other"]) | VALUES,
    "adapters": VALUES,
    "prompt": VALUES,
    "messages": VALUES,
}


@settings(max_examples=200)
@given(st.fixed_dictionaries({}, optional=FIELDS) | VALUES | st.binary(max_size=9))
def test_a_body_is_asked_or_refused(body: Any) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    call = Call("generate", CATALOGUE, {}, {}, {}, "r", data)
    try:
        asked: Any = LMI.parse(call)
    except (BadRequest, NotFound) as error:
        asked = LMI.refuse(error, error.status, call)
    if isinstance(asked, Answer):
        assert asked.status in {400, 404, 424}
        told = json.loads(asked.body)
        failed = told.get("error") or told.get("message") or told["token"]["error_msg"]
        assert failed["message"] if isinstance(failed, dict) else failed
        return
    assert isinstance(asked, Ask)
    requests = asked.request.requests if isinstance(asked.request, Batch) else (asked.request,)
    assert requests
    assert all(encode(request) for request in requests)
