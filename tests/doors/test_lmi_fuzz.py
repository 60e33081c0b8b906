"""Whatever stands in the body of an invocation: it is asked, or refused by a sentence in one of LMI's shapes."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_completion_fuzz import parse_or_refuse
from tg_base.protocol import Presence, Route
from tg_doors.lmi import LMI
from tg_doors.lmi.parameters import LmiParameters
from tg_gateway.dialects import Call, Catalogue
from tg_schema import TEXT_COMPLETION

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
    answer = parse_or_refuse(LMI, call)
    if answer is not None:
        assert answer.status in {400, 404, 424}
        told = json.loads(answer.body)
        failed = told.get("error") or told.get("message") or told["token"]["error_msg"]
        assert failed["message"] if isinstance(failed, dict) else failed
