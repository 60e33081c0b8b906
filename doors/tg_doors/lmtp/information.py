"""MODEL_INFO and HELLO: what a model can do on this socket, and which extensions client and gateway share."""

from collections.abc import Mapping, Set
from typing import Annotated, Any, Final, Literal

import msgspec

from tg_doors.lmtp.messages import StreamId, encode_message
from tg_gateway.dialects import Catalogue, FoundModel

UNAVAILABLE: Final = "<unavailable>"
"""LMQL's clients ask again later."""
NEGOTIABLE: Final = ("SYSTEM", "ERRORS")
"""Extensions sent only to clients that have accepted them: a type of message, and kinds of errors."""
_ID_FEATURES: Final = frozenset({"prompt_ids", "logprobs", "end_token"})


Status = Literal["unavailable", "loading", "ready"]
"""A model's status; `loading` = the next request waits until it is loaded. LMQL's clients know only `unavailable`."""


class ModelInfoBody(msgspec.Struct, frozen=True):
    """The JSON of a MODEL_INFO; LMQL's clients name the model in `data` too."""

    stream_id: StreamId
    model: str
    data: Any = None


class HelloBody(msgspec.Struct, frozen=True):
    """The JSON of a HELLO."""

    accept: tuple[Annotated[str, msgspec.Meta(max_length=64)], ...]
    stream_id: StreamId | None = None


def encode_model_info(stream: int, found: FoundModel, catalogue: Catalogue) -> bytes:
    """The answer to a MODEL_INFO."""
    # A plain peer announces nothing, so assume that it is there.
    known = found.route.plain or found.model in catalogue.models()
    text = f"{found.model} (flow {found.route.flow})" if known else UNAVAILABLE
    status: Status = "unavailable" if not known else "loading" if found.loading else "ready"
    capabilities = _list_capabilities(found.features)
    told = {"stream_id": stream, "model_info": text, "status": status, "capabilities": capabilities}
    return encode_message(b"MSG", [told])


def encode_hello(stream: int | None, accepted: Set[str]) -> bytes:
    """The answer to a HELLO."""
    named = tuple(name for name in NEGOTIABLE if name in accepted)
    return encode_message(b"MSG", [{"stream_id": stream, "accepted": named}])


def _list_capabilities(features: Set[str]) -> Mapping[str, bool]:
    """What the model's processors can do: `ids` = GENERATE as LMQL asks for it, `packed_floats` = Base64 masks."""
    ids = features >= _ID_FEATURES
    return {
        "ids": ids,
        "score": features >= {"prompt_ids", "score"},
        "logit_bias": ids and "logit_bias" in features,
        "packed_floats": ids and "packed_floats" in features,
        "text": True,
        "raw_text": "raw" in features,
        "stop": "stop" in features,
        "seed": "seed" in features,
        "resume": True,
    }
