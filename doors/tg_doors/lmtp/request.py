"""GENERATE and SCORE -> the request record: the parameters of LMQL's clients, and ours in addition."""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec

from tg_doors.lmtp.buffers import BufferId
from tg_doors.lmtp.mask import MIN_PACKED_BYTES
from tg_doors.lmtp.messages import RequestKey, StreamId
from tg_doors.lmtp.prompt import Given, Prompt
from tg_gateway.dialects import FoundModel
from tg_schema import Sampling, TextCompletionRequest, decode
from tg_schema.errors import BadRequest
from tg_schema.sampling import Fraction, Penalty, TokenId

DEFAULT_MAX_TOKENS = 32
DEFAULT_TOP_LOGPROBS = 1
"""Both defaults are those of LMQL's server, like the temperature 0."""


_MASK: Final = {
    "anyOf": [
        {"type": "object", "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100}},
        {
            "type": "string",
            "contentEncoding": "base64",
            "description": "of a little-endian 32-bit float for each token, where MODEL_INFO says packed_floats",
        },
        {"type": "null"},
    ]
}
Mask = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema=_MASK)]
"""Kept as JSON, since it is read later in slices or not at all; see `read_generate` and `mask.py`."""


class StreamBody(msgspec.Struct, frozen=True):
    """The common fields of GENERATE and SCORE; unknown fields are ignored.

    Attributes:
        stream_id: the client's id of the stream; no other running stream of its socket has it.
        prompt: the input of `read_prompt`.
        deadline_ms: milliseconds until the answer must be complete.
        request_key: with it, the answer continues without its socket, and can be resumed by this key.
    """

    stream_id: StreamId
    model: str
    prompt: Given
    deadline_ms: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    request_key: RequestKey | None = None


class GenerateBody(StreamBody, frozen=True, kw_only=True):
    """The JSON of a GENERATE."""

    mode: Literal["ids", "text"] = "ids"
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = DEFAULT_MAX_TOKENS
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.0
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=1000)] | None = None
    logit_bias: Mask = msgspec.field(default_factory=partial(msgspec.Raw, b"null"))
    top_p: Fraction | None = None
    top_k: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0, le=100)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    length_penalty: Annotated[float, msgspec.Meta(ge=-100, le=100)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: tuple[str, ...] = ()
    buffer_id: BufferId | None = None
    """The id of the buffer that the stream leaves at its end, with its prompt and its answer."""


class TextBody(GenerateBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GENERATE of a client that is not LMQL's."""


class ScoreBody(StreamBody, frozen=True, kw_only=True):
    """The JSON of a SCORE; its other fields, which LMQL's clients may send, change no score."""

    scored: tuple[TokenId, ...]


def make_generate(
    body: GenerateBody,
    prompt: Prompt,
    found: FoundModel,
    mask: Mapping[str, Any],
) -> TextCompletionRequest:
    """The record of a GENERATE.

    Args:
        body: the message's fields.
        prompt: the prompt, already read.
        found: the model.
        mask: the field of `Sampling` that has the mask; empty = there is none.

    Raises:
        BadRequest: the model cannot do this.
    """
    ids = body.mode == "ids"
    if ids and body.stop:
        raise BadRequest("stop: token streams have no stop strings; send mode: text, or stop reading and CANCEL")
    sampling = Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        max_tokens=body.max_tokens,
        stop=body.stop,
        seed=body.seed,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        length_penalty=body.length_penalty,
        **mask,
        logprobs=DEFAULT_TOP_LOGPROBS if ids and body.top_logprobs is None else body.top_logprobs,
        end_token=ids,
    )
    return _address(msgspec.structs.replace(prompt.place(), sampling=sampling, streaming=True), found)


def make_score(body: ScoreBody, prompt: Prompt, found: FoundModel) -> TextCompletionRequest:
    """The record of a SCORE.

    Raises:
        BadRequest: there is nothing to score, or the model cannot do this.
    """
    if not body.scored:
        raise BadRequest("scored: at least one token id is needed")
    sampling = Sampling(logprobs=0)
    record = msgspec.structs.replace(prompt.place(), operation="score", scored=body.scored, sampling=sampling)
    return _address(record, found)


def _address(request: TextCompletionRequest, found: FoundModel) -> TextCompletionRequest:
    """The request for the model that is to answer it. Raises BadRequest, as `FoundModel.check`."""
    found.check(request)
    return msgspec.structs.replace(request, model=found.model, adapter=found.adapter)


_NAME: Final = b'"logit_bias"'
_VALUE: Final = re.compile(_NAME + rb'\s{0,9}:\s{0,9}(["{])')
_ENDS: Final = {b"{": b"}", b'"': b'"'}
_MARK: Final = b'"the mask is apart"'


def read_generate(payload: bytes) -> tuple[GenerateBody, bytes]:
    """The fields, and the JSON of `logit_bias`; use this JSON instead of the one in the fields.

    Raises:
        BadRequest: these are no fields of a GENERATE. The mask is validated when it is read.
    """
    parts = _cut_mask(payload) if len(payload) >= MIN_PACKED_BYTES else None
    if parts is not None:
        rest, mask = parts
        with suppress(BadRequest):
            body = decode(GenerateBody, rest)
            # Reject a repeated field, or a nested field of this name.
            if bytes(body.logit_bias) == _MARK:
                return body, mask
    body = decode(GenerateBody, payload)
    return body, bytes(body.logit_bias)


def _cut_mask(payload: bytes) -> tuple[bytes, bytes] | None:
    """The message with a placeholder for the mask, and the mask; None = there is no mask of this simple form."""
    found = _VALUE.match(payload, max(payload.find(_NAME), 0))
    if found is None:
        return None
    start = found.start(1)
    end = payload.find(_ENDS[found[1]], start + 1) + 1
    rest, mask = payload[:start] + _MARK + payload[end:], payload[start:end]
    # The mask has no escapes: if the match ends too early, a quote or bracket remains, and the rest is no JSON.
    return (rest, mask) if end and b"\\" not in mask and rest.count(_MARK) == 1 else None
